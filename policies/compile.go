package policies

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies/internal/celenv"
)

// policy is a compiled StageSetPolicy. It is immutable.
type policy struct {
	name string
	// uid and generation tell versions apart; builtIn tells that the policy is not stored at all.
	uid        types.UID
	generation int64
	builtIn    bool
	// problems are what is wrong with it.
	problems Problems

	target          v1alpha1.Target
	match           matcher
	actions         actions
	ignoresFailures bool
	// changesOnly tells that an update is not refused for what was wrong before.
	changesOnly bool
	params      params

	// unusable is what is wrong with the policy as a whole: nothing of it is evaluated then.
	unusable error
	// admissionOnly tells that a match condition reads who asks.
	admissionOnly bool
	conditions    []condition
	variables     *celenv.Variables
	mutations     []mutation
	rules         []rule
	annotations   []annotation
}

// defaultField is the field that a rule speaks of which does not say.
func (p *policy) defaultField() string {
	if p.target == v1alpha1.TargetStageSet {
		return "spec"
	}
	return ""
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
	override  bool
	expression
}

type annotation struct {
	key string
	expression
}

type rule struct {
	name, field, message string
	reason               metav1.StatusReason
	expression
	// messageExpression is nil if there is none.
	messageExpression *celenv.Expression
}

// environments are the compilers for each target.
type environments map[v1alpha1.Target]*celenv.Compiler

// subjects are what policies with a target are about.
var subjects = map[v1alpha1.Target]celenv.Subject{
	v1alpha1.TargetStageSet: celenv.StageSet,
	v1alpha1.TargetSource:   celenv.Source,
	v1alpha1.TargetManifest: celenv.Manifest,
}

func newEnvironments(of func(celenv.Subject) (*celenv.Compiler, error)) (environments, error) {
	all := environments{}
	for target, subject := range subjects {
		env, err := of(subject)
		if err != nil {
			return nil, err
		}
		all[target] = env
	}
	return all, nil
}

// policyCompiler compiles one policy and collects what is wrong with it.
type policyCompiler struct {
	policy  *policy
	allowed []v1alpha1.ParamKind
	// conditions compiles match conditions; env compiles what also sees variables.
	conditions, env *celenv.Compiler
}

// compilePolicy compiles source. What can be parameters is allowed. The policy is never nil, and has what is wrong with it.
func compilePolicy(all environments, source *v1alpha1.StageSetPolicy, allowed []v1alpha1.ParamKind) *policy {
	c := &policyCompiler{
		policy: &policy{
			name: source.Name, uid: source.UID, generation: source.Generation, target: source.Spec.Target,
		},
		allowed: allowed,
	}
	if c.policy.target == "" {
		c.policy.target = v1alpha1.TargetStageSet
	}
	c.env = all[c.policy.target]
	if c.env == nil {
		c.unusable("spec.target", fmt.Errorf("%q is not StageSet, Source or Manifest", source.Spec.Target))
		return c.policy
	}
	c.conditions = c.env
	c.settings(&source.Spec)
	c.limits(&source.Spec)
	c.matchConditions(source.Spec.MatchConditions)
	c.variables(source.Spec.Variables)
	for i, m := range source.Spec.Mutations {
		c.mutation(i, m)
	}
	names := map[string]bool{}
	for i, v := range source.Spec.Validations {
		c.validation(i, v, names)
	}
	c.auditAnnotations(source.Spec.AuditAnnotations)
	return c.policy
}

func (c *policyCompiler) report(field string, err error) {
	c.policy.problems = append(c.policy.problems, newProblems(c.policy.name, field, err)...)
}

// unusable reports a problem that leaves nothing to evaluate.
func (c *policyCompiler) unusable(field string, err error) {
	c.report(field, err)
	if c.policy.unusable == nil {
		c.policy.unusable = fmt.Errorf("%s: %w", field, err)
	}
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
	compiled := mutation{patchType: m.PatchType, override: m.Override}
	switch {
	case c.policy.target != v1alpha1.TargetStageSet:
		compiled.broken = fmt.Errorf("is for the target StageSet, not for %s", c.policy.target)
		c.report(field, compiled.broken)
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
	compiled := rule{name: v.Name, field: v.FieldPath, message: celenv.OneMessage(v.Message), reason: v.Reason}
	if compiled.field == "" {
		compiled.field = c.policy.defaultField()
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

// auditAnnotations compiles list. There is no audit event where a release is decided: nothing is evaluated for one there.
func (c *policyCompiler) auditAnnotations(list []v1alpha1.AuditAnnotation) {
	if len(list) > 0 && c.policy.target != v1alpha1.TargetStageSet {
		c.report("spec.auditAnnotations", fmt.Errorf("are for the target StageSet, not for %s, which no request is about", c.policy.target))
		return
	}
	keys := map[string]bool{}
	for i, a := range list {
		field := fmt.Sprintf("spec.auditAnnotations[%s]", label(i, a.Key))
		if wrong := validation.IsQualifiedName(a.Key); len(wrong) > 0 || strings.Contains(a.Key, "/") {
			c.report(field+".key", fmt.Errorf("%q is not a name such as team-limit", a.Key))
		}
		if keys[a.Key] {
			c.report(field+".key", errors.New("is used twice"))
		}
		keys[a.Key] = true
		compiled := c.compile(c.env, field+".valueExpression", a.ValueExpression, celenv.Annotation)
		c.policy.annotations = append(c.policy.annotations, annotation{key: a.Key, expression: compiled})
	}
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
