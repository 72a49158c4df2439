package policies

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies/internal/celenv"
)

// validating is the policy's validations and audit annotations.
func (e *exporter) validating() (
	*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyBinding,
) {
	spec := &e.policy.Spec
	exported := &admissionregistrationv1.ValidatingAdmissionPolicy{
		TypeMeta:   typeMeta("ValidatingAdmissionPolicy"),
		ObjectMeta: metav1.ObjectMeta{Name: e.policy.Name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy:    e.failurePolicy(),
			MatchConstraints: e.matchResources(),
			MatchConditions:  e.matchConditions(),
			Variables:        e.variables(),
		},
	}
	for _, v := range spec.Validations {
		exported.Spec.Validations = append(exported.Spec.Validations, e.validation(v))
	}
	for _, a := range spec.AuditAnnotations {
		field := fmt.Sprintf("spec.auditAnnotations[%s].valueExpression", a.Key)
		exported.Spec.AuditAnnotations = append(exported.Spec.AuditAnnotations, admissionregistrationv1.AuditAnnotation{
			Key: a.Key, ValueExpression: e.expression(e.env, field, a.ValueExpression, celenv.Annotation),
		})
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   typeMeta("ValidatingAdmissionPolicyBinding"),
		ObjectMeta: metav1.ObjectMeta{Name: e.policy.Name},
		Spec:       admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: e.policy.Name},
	}
	for _, action := range spec.ValidationActions {
		binding.Spec.ValidationActions = append(binding.Spec.ValidationActions, admissionregistrationv1.ValidationAction(action))
	}
	if len(binding.Spec.ValidationActions) == 0 {
		binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	}
	return exported, binding
}

func (e *exporter) validation(v v1alpha1.Validation) admissionregistrationv1.Validation {
	field := fmt.Sprintf("spec.validations[%s]", v.Name)
	exported := admissionregistrationv1.Validation{
		Expression: e.expression(e.env, field+".expression", v.Expression, celenv.Bool), Message: v.Message,
	}
	if v.Reason != "" {
		exported.Reason = ptr.To(v.Reason)
	}
	if v.MessageExpression == "" {
		return exported
	}
	field += ".messageExpression"
	exported.MessageExpression = e.expression(e.env, field, v.MessageExpression, celenv.String)
	if compiled, err := e.env.Compile(v.MessageExpression, celenv.String); err == nil && e.asks(compiled) {
		e.refuse(field, "asks the authorizer, itself or through a variable, which messages do not see there")
	}
	return exported
}

// mutating is the policy's mutations.
func (e *exporter) mutating() (
	*admissionregistrationv1.MutatingAdmissionPolicy, *admissionregistrationv1.MutatingAdmissionPolicyBinding,
) {
	exported := &admissionregistrationv1.MutatingAdmissionPolicy{
		TypeMeta:   typeMeta("MutatingAdmissionPolicy"),
		ObjectMeta: metav1.ObjectMeta{Name: e.policy.Name},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			FailurePolicy:      e.failurePolicy(),
			MatchConstraints:   e.matchResources(),
			MatchConditions:    e.matchConditions(),
			Variables:          e.variables(),
			ReinvocationPolicy: admissionregistrationv1.IfNeededReinvocationPolicy,
		},
	}
	for i, m := range e.policy.Spec.Mutations {
		exported.Spec.Mutations = append(exported.Spec.Mutations, e.mutation(fmt.Sprintf("spec.mutations[%d]", i), m))
	}
	return exported, &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		TypeMeta:   typeMeta("MutatingAdmissionPolicyBinding"),
		ObjectMeta: metav1.ObjectMeta{Name: e.policy.Name},
		Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: e.policy.Name},
	}
}

func (e *exporter) mutation(field string, m v1alpha1.Mutation) admissionregistrationv1.Mutation {
	if m.PatchType == v1alpha1.PatchTypeJSONPatch {
		if !m.Override {
			e.refuse(field, "fills in only what is unset, which a JSON patch cannot say there: set override, or use an "+
				"apply configuration")
		}
		return admissionregistrationv1.Mutation{
			PatchType: admissionregistrationv1.PatchTypeJSONPatch,
			JSONPatch: &admissionregistrationv1.JSONPatch{
				Expression: e.expression(e.env, field+".jsonPatch.expression", m.JSONPatch.Expression, celenv.Patch),
			},
		}
	}
	field += ".applyConfiguration.expression"
	text := e.expression(e.env, field, m.ApplyConfiguration.Expression, celenv.Object)
	if !m.Override {
		text = e.onlyUnset(field, text)
	}
	return admissionregistrationv1.Mutation{
		PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
		ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: text},
	}
}

// onlyUnset is text such that it replaces nothing that is set.
func (e *exporter) onlyUnset(field, text string) string {
	compiled, err := e.env.Compile(text, celenv.Object)
	if err != nil {
		return text // which has been reported
	}
	narrowed, err := compiled.OnlyUnset()
	if err == nil {
		_, err = e.env.Compile(narrowed, celenv.Object)
	}
	if err != nil {
		e.refuse(field, "fills in only what is unset, which cannot be expressed here: it %s", err)
	}
	return narrowed
}

func (e *exporter) failurePolicy() *admissionregistrationv1.FailurePolicyType {
	if e.policy.Spec.FailurePolicy == v1alpha1.FailurePolicyIgnore {
		return ptr.To(admissionregistrationv1.Ignore)
	}
	return ptr.To(admissionregistrationv1.Fail)
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: kind}
}
