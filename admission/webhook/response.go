package webhook

import (
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/stageset/stageset/policies"
)

// auditViolations is the key of the audit annotation that holds the audited violations; the API server puts the webhook's
// name in front.
const auditViolations = "violations"

// respond turns a decision into the answer to a request.
func respond(request admission.Request, decision policies.Decision) admission.Response {
	response := admission.Allowed("")
	if len(decision.Denied) > 0 {
		response = denied(request, decision.Denied)
	}
	response.Warnings = lines(decision.Warned)
	if len(decision.Audited) > 0 {
		response.AuditAnnotations = map[string]string{auditViolations: strings.Join(lines(decision.Audited), "\n")}
	}
	return response
}

// denied is a Status of reason Invalid with one cause a violation. kubectl prints the causes of such a Status and not its
// message; other clients print the message. Both say the same.
func denied(request admission.Request, violations []policies.Violation) admission.Response {
	causes := make([]metav1.StatusCause, 0, len(violations))
	for _, violation := range violations {
		causes = append(causes, metav1.StatusCause{
			Type: metav1.CauseTypeFieldValueInvalid, Field: violation.Field, Message: violation.String(),
		})
	}
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{
		Result: &metav1.Status{
			Status:  metav1.StatusFailure,
			Code:    http.StatusUnprocessableEntity,
			Reason:  metav1.StatusReasonInvalid,
			Message: strings.Join(lines(violations), "\n"),
			Details: &metav1.StatusDetails{
				Group: request.Kind.Group, Kind: request.Kind.Kind, Name: request.Name, Causes: causes,
			},
		},
	}}
}

// overloaded asks the client to come back. The API server turns the seconds into a Retry-After header, which client-go and
// kubectl follow by themselves.
func overloaded() admission.Response {
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{
		Result: &metav1.Status{
			Status:  metav1.StatusFailure,
			Code:    http.StatusTooManyRequests,
			Reason:  metav1.StatusReasonTooManyRequests,
			Message: "too many StageSets are being admitted at once; try again in a second",
			Details: &metav1.StatusDetails{RetryAfterSeconds: 1},
		},
	}}
}

func lines(violations []policies.Violation) []string {
	var out []string
	for _, violation := range violations {
		out = append(out, violation.String())
	}
	return out
}
