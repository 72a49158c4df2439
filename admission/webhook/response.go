package webhook

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/stageset/stageset/policies"
)

// The keys of our audit annotations; the API server puts the webhook's name in front.
const (
	// auditViolations holds the audited violations, one a line.
	auditViolations = "violations"
	// auditAnnotations holds the auditAnnotations of policies as one JSON object, by <policy>/<key>: their keys may be longer
	// than those of audit annotations, and have a slash.
	auditAnnotations = "annotations"
	// auditParams holds the objects, with their versions, that policies were evaluated with, one a line.
	auditParams = "params"
)

// respond turns a decision into the answer to a request.
func respond(request admission.Request, decision policies.Decision) admission.Response {
	response := admission.Allowed("")
	if len(decision.Denied) > 0 {
		response = denied(request, decision.Denied)
	}
	response.Warnings = lines(decision.Warned)
	response.AuditAnnotations = annotations(decision)
	return response
}

func annotations(decision policies.Decision) map[string]string {
	found := map[string]string{}
	if len(decision.Audited) > 0 {
		found[auditViolations] = strings.Join(lines(decision.Audited), "\n")
	}
	if len(decision.AuditAnnotations) > 0 {
		// A map of strings can always be encoded, and always in the same order.
		content, _ := json.Marshal(decision.AuditAnnotations)
		found[auditAnnotations] = string(content)
	}
	if len(decision.Params) > 0 {
		found[auditParams] = strings.Join(lines(decision.Params), "\n")
	}
	return found
}

// codes are those of the reasons that a rule can have.
var codes = map[metav1.StatusReason]int32{
	metav1.StatusReasonInvalid:               http.StatusUnprocessableEntity,
	metav1.StatusReasonForbidden:             http.StatusForbidden,
	metav1.StatusReasonUnauthorized:          http.StatusUnauthorized,
	metav1.StatusReasonRequestEntityTooLarge: http.StatusRequestEntityTooLarge,
}

// reason is the one that all violations have, and Invalid if they have different ones, or none that is known.
func reason(violations []policies.Violation) metav1.StatusReason {
	common := violations[0].Reason
	for _, violation := range violations {
		if violation.Reason != common {
			return metav1.StatusReasonInvalid
		}
	}
	if codes[common] == 0 {
		return metav1.StatusReasonInvalid
	}
	return common
}

// denied is a Status with one cause a violation, of reason Invalid if no rule wants another. kubectl prints the causes of
// such a Status and not its message, and of any other its message; other clients print the message. Both say the same.
func denied(request admission.Request, violations []policies.Violation) admission.Response {
	causes := make([]metav1.StatusCause, 0, len(violations))
	for _, violation := range violations {
		causes = append(causes, metav1.StatusCause{
			Type: metav1.CauseTypeFieldValueInvalid, Field: violation.Field, Message: violation.String(),
		})
	}
	response := invalid(request, strings.Join(lines(violations), "\n"), causes)
	response.Result.Reason = reason(violations)
	response.Result.Code = codes[response.Result.Reason]
	return response
}

func invalid(request admission.Request, message string, causes []metav1.StatusCause) admission.Response {
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{
		Result: &metav1.Status{
			Status:  metav1.StatusFailure,
			Code:    http.StatusUnprocessableEntity,
			Reason:  metav1.StatusReasonInvalid,
			Message: message,
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
			Message: "too much is being admitted at once; try again in a second",
			Details: &metav1.StatusDetails{RetryAfterSeconds: 1},
		},
	}}
}

func lines[T fmt.Stringer](list []T) []string {
	var out []string
	for _, item := range list {
		out = append(out, item.String())
	}
	return out
}
