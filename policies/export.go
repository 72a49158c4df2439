package policies

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies/internal/celenv"
)

// ExportOptions are what an exported policy has written into it, because Kubernetes' own policies cannot be told.
type ExportOptions struct {
	// PlatformNamespaces are the namespaces in which the variable tenant is false, as in Options.
	PlatformNamespaces []string
	// TrustNamespaceKeys is as in Options.
	TrustNamespaceKeys bool
	// Params is the value of the variable params, which is written into the policy; nil if it has none. What paramRef selects
	// is no way out: with params of a kind that is not the API server's own, it could not decide about what brings that kind.
	Params map[string]any
}

// Exported is a StageSetPolicy as Kubernetes' own policies: the validations in a ValidatingAdmissionPolicy, the mutations in
// a MutatingAdmissionPolicy, each with its binding. What a policy does not have is nil.
type Exported struct {
	Validating        *admissionregistrationv1.ValidatingAdmissionPolicy
	ValidatingBinding *admissionregistrationv1.ValidatingAdmissionPolicyBinding
	Mutating          *admissionregistrationv1.MutatingAdmissionPolicy
	MutatingBinding   *admissionregistrationv1.MutatingAdmissionPolicyBinding
}

// Export is policy as Kubernetes' own policies, which decide about StageSets alike, at admission. The error is Problems:
// what is wrong with the policy, or each part that cannot be expressed there.
func Export(policy *v1alpha1.StageSetPolicy, options ExportOptions) (Exported, error) {
	e := &exporter{policy: policy, options: options}
	if err := e.compile(); err != nil {
		return Exported{}, err
	}
	if e.settings(); policy.Spec.Target != "" && policy.Spec.Target != v1alpha1.TargetStageSet {
		return Exported{}, e.problems // its expressions read what is not there
	}
	var result Exported
	if len(policy.Spec.Validations) > 0 {
		result.Validating, result.ValidatingBinding = e.validating()
	}
	if len(policy.Spec.Mutations) > 0 {
		result.Mutating, result.MutatingBinding = e.mutating()
	}
	return result, e.problems.orNil()
}

// maxNativeChecks is how often an expression can ask the authorizer within what the API server lets it cost.
const maxNativeChecks = 2

// exporter exports one policy and collects what cannot be.
type exporter struct {
	policy   *v1alpha1.StageSetPolicy
	options  ExportOptions
	problems Problems
	// values replace the variables that the other policies do not have.
	values map[string]string
	// asking are the variables that ask the authorizer, themselves or through others.
	asking map[string]bool
	// conditions compiles match conditions; env compiles what also sees variables.
	conditions, env *celenv.Compiler
}

// compile makes the compilers, and finds out whether policy is one at all.
func (e *exporter) compile() error {
	all, err := newEnvironments(func(subject celenv.Subject) (*celenv.Compiler, error) {
		return celenv.NewCompiler(celenv.Stored, subject)
	})
	if err != nil {
		return err
	}
	if compiled := compilePolicy(all, e.policy, e.paramResources()); len(compiled.problems) > 0 {
		return compiled.problems
	}
	e.conditions = all[v1alpha1.TargetStageSet]
	definitions := make([]celenv.Definition, 0, len(e.policy.Spec.Variables))
	for _, v := range e.policy.Spec.Variables {
		definitions = append(definitions, celenv.Definition{Name: v.Name, Expression: v.Expression})
	}
	e.env, _, _ = e.conditions.CompileVariables(definitions)
	e.asking = map[string]bool{}
	for _, definition := range definitions {
		compiled, err := e.env.Compile(definition.Expression, celenv.Any)
		e.asking[definition.Name] = err == nil && e.asks(compiled)
	}
	e.values = map[string]string{"tenant": tenantExpression(e.options)}
	if e.options.Params != nil {
		e.values["params"] = literal(e.options.Params)
	}
	return nil
}

// asks tells whether an expression asks the authorizer, itself or through a variable.
func (e *exporter) asks(compiled *celenv.Expression) bool {
	for name, asking := range e.asking {
		if asking && compiled.ReadsVariable(name) {
			return true
		}
	}
	return compiled.Reads("authorizer")
}

// paramResources allows whatever the policy asks for: here it is the API server that reads it.
func (e *exporter) paramResources() []v1alpha1.ParamKind {
	if kind := e.policy.Spec.ParamKind; kind != nil {
		return []v1alpha1.ParamKind{*kind}
	}
	return nil
}

// tenantExpression is what the variable tenant stands for.
func tenantExpression(options ExportOptions) string {
	if slices.Contains(options.PlatformNamespaces, AllNamespaces) {
		return "false"
	}
	var all []string
	if len(options.PlatformNamespaces) > 0 {
		quoted := make([]string, 0, len(options.PlatformNamespaces))
		for _, namespace := range options.PlatformNamespaces {
			quoted = append(quoted, literal(namespace))
		}
		all = append(all, "!(request.namespace in ["+strings.Join(quoted, ", ")+"])")
	}
	if options.TrustNamespaceKeys {
		all = append(all, "namespaceObject.metadata.?labels[?"+literal(v1.LabelTenancy)+"].orValue('') != "+
			literal(v1.TenancyPlatform))
	}
	switch len(all) {
	case 0:
		return "true"
	case 1:
		return all[0]
	default:
		return "(" + strings.Join(all, " && ") + ")"
	}
}

// literal is value, as JSON has it, in CEL. The items of lists and maps are dynamic there, because they need not be of one
// type.
func literal(value any) string {
	switch typed := value.(type) {
	case map[string]any:
		var entries []string
		for _, key := range sortedNames(typed) {
			entries = append(entries, fmt.Sprintf("%s: dyn(%s)", literal(key), literal(typed[key])))
		}
		return "{" + strings.Join(entries, ", ") + "}"
	case []any:
		var items []string
		for _, item := range typed {
			items = append(items, "dyn("+literal(item)+")")
		}
		return "[" + strings.Join(items, ", ") + "]"
	case float64:
		text := fmt.Sprint(typed)
		if !strings.ContainsAny(text, ".e") {
			text += ".0"
		}
		return text
	default:
		// Strings, integers, booleans and null are in CEL what they are in JSON.
		text, err := json.Marshal(typed)
		if err != nil {
			return "null"
		}
		return string(text)
	}
}

func sortedNames(m map[string]any) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// refuse says why field cannot be exported; once, even if both of the other policies have it.
func (e *exporter) refuse(field, format string, args ...any) {
	problem := Problem{Policy: e.policy.Name, Field: field, Message: fmt.Sprintf(format, args...)}
	if !slices.Contains(e.problems, problem) {
		e.problems = append(e.problems, problem)
	}
}

// settings refuses what has no counterpart as a whole.
func (e *exporter) settings() {
	spec := &e.policy.Spec
	if spec.Target != "" && spec.Target != v1alpha1.TargetStageSet {
		e.refuse("spec.target", "is %s: only policies about StageSets can be exported, which alone pass the API server",
			spec.Target)
	}
	if spec.ParamRef != nil && e.options.Params == nil {
		e.refuse("spec.paramRef", "refers to params, which are written into the policy there: say what they are")
	}
	if spec.EnforceOn == v1alpha1.EnforceOnChanges {
		e.refuse("spec.enforceOn", "is Changes: a policy that refuses only what was not wrong before cannot be expressed there")
	}
}

// expression is text for the other policies; env is what compiles it here.
func (e *exporter) expression(env *celenv.Compiler, field, text string, result celenv.Result) string {
	compiled, err := env.Compile(text, result)
	if err != nil {
		e.problems = append(e.problems, newProblems(e.policy.Name, field, err)...)
		return text
	}
	if compiled.Reads("params") && e.values["params"] == "" && e.policy.Spec.ParamRef == nil {
		e.refuse(field, "reads params, which the policy does not refer to: say what they are")
	}
	switch count, looped := compiled.Checks(); {
	case looped:
		e.refuse(field, "asks the authorizer in a loop, and there an expression can ask it at most %d times", maxNativeChecks)
	case count > maxNativeChecks:
		e.refuse(field, "asks the authorizer %d times, and there an expression can ask it at most %d times",
			count, maxNativeChecks)
	}
	replaced, err := compiled.Substitute(text, e.values)
	if err != nil {
		e.refuse(field, "%s", err)
		return text
	}
	// The text of the export is longer, and what limits it here limits it there, too.
	if _, err := env.Compile(replaced, result); err != nil {
		err = fmt.Errorf("with what is written into it: %w", err)
		e.problems = append(e.problems, newProblems(e.policy.Name, field, err)...)
	}
	return replaced
}

func (e *exporter) matchConditions() []admissionregistrationv1.MatchCondition {
	var list []admissionregistrationv1.MatchCondition
	for _, m := range e.policy.Spec.MatchConditions {
		field := fmt.Sprintf("spec.matchConditions[%s].expression", m.Name)
		compiled, err := e.conditions.Compile(m.Expression, celenv.Bool)
		if err == nil && compiled.Reads("namespaceObject") {
			e.refuse(field, "reads namespaceObject, which match conditions do not see there: "+
				"use matchConstraints.namespaceSelector")
		}
		list = append(list, admissionregistrationv1.MatchCondition{
			Name: m.Name, Expression: e.expression(e.conditions, field, m.Expression, celenv.Bool),
		})
	}
	return list
}

func (e *exporter) variables() []admissionregistrationv1.Variable {
	var list []admissionregistrationv1.Variable
	for _, v := range e.policy.Spec.Variables {
		field := fmt.Sprintf("spec.variables[%s].expression", v.Name)
		list = append(list, admissionregistrationv1.Variable{
			Name: v.Name, Expression: e.expression(e.env, field, v.Expression, celenv.Any),
		})
	}
	return list
}

// matchResources selects the StageSets that the policy is evaluated on.
func (e *exporter) matchResources() *admissionregistrationv1.MatchResources {
	constraints := e.policy.Spec.MatchConstraints
	if constraints == nil {
		constraints = &v1alpha1.MatchConstraints{}
	}
	operations := []admissionregistrationv1.OperationType{}
	for _, operation := range constraints.Operations {
		operations = append(operations, admissionregistrationv1.OperationType(operation))
	}
	if len(operations) == 0 {
		operations = append(operations, admissionregistrationv1.Create, admissionregistrationv1.Update)
	}
	return &admissionregistrationv1.MatchResources{
		NamespaceSelector: namespaceSelector(constraints),
		ObjectSelector:    constraints.ObjectSelector,
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: operations,
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{v1.GroupVersion.Group}, APIVersions: []string{v1.GroupVersion.Version},
					Resources: []string{"stagesets"},
				},
			},
		}},
	}
}

// namespaceSelector selects by labels, and leaves out the excluded namespaces, by the label that says their name.
func namespaceSelector(constraints *v1alpha1.MatchConstraints) *metav1.LabelSelector {
	if len(constraints.ExcludeNamespaces) == 0 {
		return constraints.NamespaceSelector
	}
	selector := &metav1.LabelSelector{}
	if constraints.NamespaceSelector != nil {
		constraints.NamespaceSelector.DeepCopyInto(selector)
	}
	selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: constraints.ExcludeNamespaces,
	})
	return selector
}
