package policies

import (
	"errors"
	"fmt"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies/internal/celenv"
)

// policy is a compiled StageSetPolicy. It is immutable.
type policy struct {
	name            string
	match           matcher
	actions         actions
	ignoresFailures bool
	params          map[string]any

	// unusable is what is wrong with the policy as a whole: nothing of it is evaluated then.
	unusable error
	// admissionOnly tells that a match condition reads who asks.
	admissionOnly bool
	conditions    []condition
	variables     *celenv.Variables
	mutations     []mutation
	rules         []rule
}

// actions are what violations lead to.
type actions struct {
	deny, warn, audit bool
}

// expression is a compiled expression, or the reason why there is none.
type expression struct {
	*celenv.Expression
	broken error
	// admissionOnly tells that it reads who asks, itself or through a variable.
	admissionOnly bool
}

type condition struct {
	name string
	expression
}

type mutation struct {
	patchType v1alpha1.PatchType
	expression
}

type rule struct {
	name, field, message string
	expression
	// messageExpression is nil if there is none.
	messageExpression *celenv.Expression
}

// policyCompiler compiles one policy and collects what is wrong with it.
type policyCompiler struct {
	policy   *policy
	problems Problems
	// conditions compiles match conditions; env compiles what also sees variables.
	conditions, env *celenv.Compiler
}

// compilePolicy compiles source with env. The policy is never nil.
func compilePolicy(env *celenv.Compiler, source *v1alpha1.StageSetPolicy) (*policy, Problems) {
	c := &policyCompiler{policy: &policy{name: source.Name}, conditions: env, env: env}
	c.settings(&source.Spec)
	c.matchConditions(source.Spec.MatchConditions)
	c.variables(source.Spec.Variables)
	for i, m := range source.Spec.Mutations {
		c.mutation(i, m)
	}
	names := map[string]bool{}
	for i, v := range source.Spec.Validations {
		c.validation(i, v, names)
	}
	return c.policy, c.problems
}

func (c *policyCompiler) report(field string, err error) {
	c.problems = append(c.problems, newProblems(c.policy.name, field, err)...)
}

// unusable reports a problem that leaves nothing to evaluate.
func (c *policyCompiler) unusable(field string, err error) {
	c.report(field, err)
	if c.policy.unusable == nil {
		c.policy.unusable = fmt.Errorf("%s: %w", field, err)
	}
}

// settings compiles what is not CEL.
func (c *policyCompiler) settings(spec *v1alpha1.StageSetPolicySpec) {
	if c.policy.name == "" {
		c.unusable("metadata.name", errors.New("is empty"))
	}
	switch spec.FailurePolicy {
	case "", v1alpha1.FailurePolicyFail:
	case v1alpha1.FailurePolicyIgnore:
		c.policy.ignoresFailures = true
	default:
		c.unusable("spec.failurePolicy", fmt.Errorf("%q is not Fail or Ignore", spec.FailurePolicy))
	}
	c.policy.match = newMatcher(spec.MatchConstraints, func(field string, err error) {
		c.unusable("spec.matchConstraints."+field, err)
	})
	if spec.Target != "" && spec.Target != v1alpha1.TargetStageSet {
		// It is about something else than StageSets, so that it has nothing to say about them.
		c.report("spec.target", fmt.Errorf("%q is not StageSet", spec.Target))
		c.policy.match.operations = nil
	}
	c.policy.actions = c.actions(spec.ValidationActions)
	if len(spec.Validations) == 0 && len(spec.Mutations) == 0 {
		c.report("spec", errors.New("has neither validations nor mutations"))
	}
}

func (c *policyCompiler) actions(list []v1alpha1.ValidationAction) actions {
	var set actions
	for _, action := range list {
		switch action {
		case v1alpha1.ValidationActionDeny:
			set.deny = true
		case v1alpha1.ValidationActionWarn:
			set.warn = true
		case v1alpha1.ValidationActionAudit:
			set.audit = true
		default:
			c.unusable("spec.validationActions", fmt.Errorf("%q is not Deny, Warn or Audit", action))
		}
	}
	if set.deny && set.warn {
		c.report("spec.validationActions", errors.New("has both Deny and Warn, which would show each violation twice"))
		set.warn = false
	}
	if set == (actions{}) {
		set.deny = true
	}
	return set
}

func (c *policyCompiler) matchConditions(list []v1alpha1.MatchCondition) {
	names := map[string]bool{}
	for i, m := range list {
		field := fmt.Sprintf("spec.matchConditions[%s]", label(i, m.Name))
		c.name(field, m.Name, names)
		compiled := c.compile(c.conditions, field+".expression", m.Expression, celenv.Bool)
		c.policy.conditions = append(c.policy.conditions, condition{name: m.Name, expression: compiled})
		c.policy.admissionOnly = c.policy.admissionOnly || compiled.admissionOnly
	}
}

func (c *policyCompiler) variables(list []v1alpha1.Variable) {
	definitions := make([]celenv.Definition, 0, len(list))
	for _, v := range list {
		definitions = append(definitions, celenv.Definition{Name: v.Name, Expression: v.Expression})
	}
	env, variables, broken := c.env.CompileVariables(definitions)
	for _, v := range list {
		if err, ok := broken[v.Name]; ok {
			c.report(fmt.Sprintf("spec.variables[%s].expression", v.Name), err)
			delete(broken, v.Name)
		}
	}
	c.env, c.policy.variables = env, variables
}

func (c *policyCompiler) mutation(i int, m v1alpha1.Mutation) {
	field := fmt.Sprintf("spec.mutations[%d]", i)
	compiled := mutation{patchType: m.PatchType}
	switch {
	case m.PatchType == v1alpha1.PatchTypeApplyConfiguration && m.ApplyConfiguration != nil && m.JSONPatch == nil:
		field += ".applyConfiguration.expression"
		compiled.expression = c.compile(c.env, field, m.ApplyConfiguration.Expression, celenv.Object)
	case m.PatchType == v1alpha1.PatchTypeJSONPatch && m.JSONPatch != nil && m.ApplyConfiguration == nil:
		field += ".jsonPatch.expression"
		compiled.expression = c.compile(c.env, field, m.JSONPatch.Expression, celenv.Patch)
	default:
		compiled.broken = errors.New("patchType is ApplyConfiguration, and applyConfiguration alone is set, " +
			"or JSONPatch, and jsonPatch alone is set")
		c.report(field, compiled.broken)
	}
	c.policy.mutations = append(c.policy.mutations, compiled)
}

func (c *policyCompiler) validation(i int, v v1alpha1.Validation, names map[string]bool) {
	field := fmt.Sprintf("spec.validations[%s]", label(i, v.Name))
	c.name(field, v.Name, names)
	compiled := rule{name: v.Name, field: v.FieldPath, message: celenv.OneMessage(v.Message)}
	if compiled.field == "" {
		compiled.field = "spec"
	}
	if compiled.message == "" {
		c.report(field+".message", errors.New("is empty: it is what is shown when messageExpression fails"))
		compiled.message = "failed expression: " + celenv.OneMessage(v.Expression)
	}
	compiled.expression = c.compile(c.env, field+".expression", v.Expression, celenv.Bool)
	if v.MessageExpression != "" {
		message := c.compile(c.env, field+".messageExpression", v.MessageExpression, celenv.String)
		compiled.messageExpression = message.Expression
		compiled.admissionOnly = compiled.admissionOnly || message.admissionOnly
	}
	c.policy.rules = append(c.policy.rules, compiled)
}

func (c *policyCompiler) compile(env *celenv.Compiler, field, text string, result celenv.Result) expression {
	compiled, err := env.Compile(text, result)
	if err != nil {
		c.report(field, err)
		return expression{broken: err}
	}
	return expression{Expression: compiled, admissionOnly: compiled.NeedsRequest(c.policy.variables)}
}

// name reports a name that does not tell an item from the others.
func (c *policyCompiler) name(field, name string, taken map[string]bool) {
	switch {
	case name == "":
		c.report(field+".name", errors.New("is empty"))
	case taken[name]:
		c.report(field+".name", errors.New("is used twice"))
	}
	taken[name] = true
}

// label is how an item of a list is told from the others: by its name, or by its position if it has none.
func label(i int, name string) string {
	if name == "" {
		return fmt.Sprint(i)
	}
	return name
}
