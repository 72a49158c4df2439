package policies

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies/internal/celenv"
)

// ExplainTimeout bounds one Explain, in which the costs of CEL are not limited.
const ExplainTimeout = 10 * time.Second

// Step is the value of a part of an expression.
type Step = celenv.Step

// Explanation is the value of one expression of a policy, and of every part of it.
type Explanation struct {
	// Field is the path of the expression, such as spec.validations[sources].expression.
	Field string
	// Value is what it evaluated to, as JSON has it, or why it could not be evaluated.
	Value string
	// Steps are its parts, from left to right, the larger first.
	Steps []Step
}

// ExplainInput is what a policy is explained on: the member for its target is set.
type ExplainInput struct {
	StageSet *Input
	Source   *SourceInput
	Manifest *ManifestInput
}

// Explain is the value of every expression of policy on in, in the order of evaluation: also of those that would not be
// evaluated. Mutations see the StageSet as it is in; everything else sees it as they leave it. The values of a Secret are
// replaced before anything reads them. The error is Problems if the policy does not compile.
//
// It is for people who look for a mistake: it takes longer than Validate, up to ExplainTimeout, and decides nothing.
func Explain(
	ctx context.Context, policy *v1alpha1.StageSetPolicy, options Options, in ExplainInput,
) ([]Explanation, error) {
	ctx, cancel := context.WithTimeout(ctx, ExplainTimeout)
	defer cancel()
	set, err := Compile(ctx, []v1alpha1.StageSetPolicy{*policy}, options)
	if err != nil {
		return nil, err
	}
	p := set.policies[0]
	q, err := in.question(p.target)
	if err != nil {
		return nil, err
	}
	x, err := newExplainer(ctx, set, p, policy)
	if err != nil {
		return nil, err
	}
	if q.target == v1alpha1.TargetStageSet && q.Object != nil && len(p.mutations) > 0 {
		if err := x.at(q); err != nil {
			return nil, err
		}
		x.mutations()
		defaulted := q.Input
		if defaulted.Object, err = set.Default(ctx, q.Input); err != nil {
			x.found = append(x.found, Explanation{Field: "spec.mutations", Value: "error: " + celenv.OneMessage(err.Error())})
		}
		q = newQuestion(defaulted)
	}
	if err := x.at(q); err != nil {
		return nil, err
	}
	x.rules()
	return x.found, nil
}

// question is what in asks of a policy with the target.
func (in ExplainInput) question(target v1alpha1.Target) (question, error) {
	switch {
	case target == v1alpha1.TargetStageSet && in.StageSet != nil:
		return newQuestion(*in.StageSet), nil
	case target == v1alpha1.TargetSource && in.Source != nil:
		return newSourceQuestion(*in.Source), nil
	case target == v1alpha1.TargetManifest && in.Manifest != nil:
		redacted := *in.Manifest
		redacted.Object = redact(redacted.Object)
		return newManifestQuestion(redacted), nil
	default:
		return question{}, fmt.Errorf("the policy is about a %s, and there is none to explain it on", target)
	}
}

// redacted takes the place of the values of Secrets.
const redacted = "redacted"

// redact is object without the values of a Secret, also not those that kubectl keeps in an annotation.
func redact(object *unstructured.Unstructured) *unstructured.Unstructured {
	if object == nil || object.GetKind() != "Secret" || object.GroupVersionKind().Group != "" {
		return object
	}
	object = object.DeepCopy()
	for field, value := range map[string]string{
		"data": base64.StdEncoding.EncodeToString([]byte(redacted)), "stringData": redacted,
	} {
		if values, ok := object.Object[field].(map[string]any); ok {
			for key := range values {
				values[key] = value
			}
		} else if object.Object[field] != nil {
			object.Object[field] = map[string]any{}
		}
	}
	if annotations := object.GetAnnotations(); annotations[corev1.LastAppliedConfigAnnotation] != "" {
		annotations[corev1.LastAppliedConfigAnnotation] = redacted
		object.SetAnnotations(annotations)
	}
	return object
}

// explainer traces the expressions of one policy.
type explainer struct {
	ctx    context.Context
	set    *Set
	policy *policy
	source *v1alpha1.StageSetPolicySpec
	// conditions compiles match conditions; env compiles what also sees variables.
	conditions, env *celenv.Compiler
	scope           *celenv.Scope
	found           []Explanation
}

func newExplainer(ctx context.Context, set *Set, p *policy, source *v1alpha1.StageSetPolicy) (*explainer, error) {
	env, err := celenv.NewCompiler(celenv.Stored, subjects[p.target])
	if err != nil {
		return nil, err
	}
	x := &explainer{ctx: ctx, set: set, policy: p, source: &source.Spec, conditions: env}
	definitions := make([]celenv.Definition, 0, len(source.Spec.Variables))
	for _, v := range source.Spec.Variables {
		definitions = append(definitions, celenv.Definition{Name: v.Name, Expression: v.Expression})
	}
	x.env, _, _ = env.CompileVariables(definitions)
	return x, nil
}

// at has what follows evaluated on q.
func (x *explainer) at(q question) error {
	params, _, err := x.policy.params.find(x.ctx, x.set.lookup, x.policy.name, q.namespace)
	if err != nil {
		return err
	}
	if len(params) == 0 {
		return errors.New("there are no params, and without the policy is not evaluated (parameterNotFoundAction Allow)")
	}
	group := celenv.NewEvaluation(x.ctx, x.set.values(q), 1).Group(x.policy.variables, params[0])
	x.scope = group.Scope(x.ctx, fields(q.Object), fields(q.OldObject))
	return nil
}

func (x *explainer) trace(env *celenv.Compiler, field, text string, result celenv.Result) {
	if text == "" {
		return
	}
	value, steps, err := env.Trace(text, result, x.scope)
	if err != nil {
		value = "error: " + celenv.OneMessage(err.Error())
	}
	x.found = append(x.found, Explanation{Field: field, Value: value, Steps: steps})
}

func (x *explainer) mutations() {
	for i, m := range x.source.Mutations {
		field := fmt.Sprintf("spec.mutations[%d]", i)
		if m.ApplyConfiguration != nil {
			x.trace(x.env, field+".applyConfiguration.expression", m.ApplyConfiguration.Expression, celenv.Object)
		}
		if m.JSONPatch != nil {
			x.trace(x.env, field+".jsonPatch.expression", m.JSONPatch.Expression, celenv.Patch)
		}
	}
}

func (x *explainer) rules() {
	for _, m := range x.source.MatchConditions {
		x.trace(x.conditions, fmt.Sprintf("spec.matchConditions[%s].expression", m.Name), m.Expression, celenv.Bool)
	}
	for _, v := range x.source.Variables {
		x.trace(x.env, fmt.Sprintf("spec.variables[%s].expression", v.Name), v.Expression, celenv.Any)
	}
	for _, v := range x.source.Validations {
		field := fmt.Sprintf("spec.validations[%s]", v.Name)
		x.trace(x.env, field+".expression", v.Expression, celenv.Bool)
		x.trace(x.env, field+".messageExpression", v.MessageExpression, celenv.String)
	}
	for _, a := range x.source.AuditAnnotations {
		field := fmt.Sprintf("spec.auditAnnotations[%s].valueExpression", a.Key)
		x.trace(x.env, field, a.ValueExpression, celenv.Annotation)
	}
}
