package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/policytest"
)

// maxWarnings bounds what kubectl shows: API servers cut the warnings of a request at 4 KiB altogether.
const maxWarnings = 16

// StageSetPolicies admits StageSetPolicies: only one that can be evaluated is stored.
type StageSetPolicies struct {
	// Options are what is known besides the policy; what was stored before is of each request.
	Options policies.CheckOptions
}

// Validate refuses a policy with everything that is wrong with it, and warns of what is questionable.
func (s *StageSetPolicies) Validate(ctx context.Context, request admission.Request) admission.Response {
	if !present(request.Object) {
		return admission.Allowed("") // a deletion, for which nobody has to call us
	}
	var policy, old v1alpha1.StageSetPolicy
	if err := json.Unmarshal(request.Object.Raw, &policy); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding the policy of the request: %w", err))
	}
	options := s.Options
	if present(request.OldObject) {
		if err := json.Unmarshal(request.OldObject.Raw, &old); err != nil {
			return admission.Errored(http.StatusBadRequest, fmt.Errorf("decoding the old policy of the request: %w", err))
		}
		options.Old = &old
	}
	checking, span := begin(ctx, "check")
	warnings, err := policytest.Check(checking, &policy, options)
	span.End()
	response := admission.Allowed("")
	var problems policies.Problems
	switch {
	case errors.As(err, &problems):
		response = refusedPolicy(request, problems)
	case err != nil:
		return admission.Errored(http.StatusInternalServerError, err)
	}
	for i, warning := range warnings {
		if i == maxWarnings {
			response.Warnings = append(response.Warnings, fmt.Sprintf("and %d more", len(warnings)-i))
			break
		}
		response.Warnings = append(response.Warnings, warning.String())
	}
	return response
}

func present(object runtime.RawExtension) bool {
	return len(object.Raw) > 0 && string(object.Raw) != "null"
}

// refusedPolicy is a Status of reason Invalid with one cause a problem. A cause names the field apart from what is wrong
// with it, and kubectl puts both together.
func refusedPolicy(request admission.Request, problems policies.Problems) admission.Response {
	causes := make([]metav1.StatusCause, 0, len(problems))
	for _, problem := range problems {
		message := problem.Message
		if problem.Line > 0 {
			message = fmt.Sprintf("line %d, column %d: %s", problem.Line, problem.Column, message)
		}
		causes = append(causes, metav1.StatusCause{
			Type: metav1.CauseTypeFieldValueInvalid, Field: problem.Field, Message: message,
		})
	}
	return invalid(request, problems.Error(), causes)
}
