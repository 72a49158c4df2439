package policies

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies/internal/celenv"
	"github.com/stageset/stageset/policies/internal/schema"
)

// CheckOptions are what Check knows besides the policy.
type CheckOptions struct {
	// Old is the policy as it is stored; nil if it is new. Expressions that are all as they were are text that is stored.
	Old *v1alpha1.StageSetPolicy
	// ParamResources are the kinds that can be parameters; nil is DefaultParamResources.
	ParamResources []v1alpha1.ParamKind
	// BuiltIn are the names of the built-in policies, which a policy cannot have.
	BuiltIn []string
}

// Check finds what is wrong with a policy that is about to be stored: whatever Compile finds, text that the previous minor
// version of Kubernetes does not know, and fields that a StageSet does not have. The error is Problems. The warnings are
// what is questionable. It needs no cluster. It does not run the policy's tests: see package policytest.
func Check(ctx context.Context, policy *v1alpha1.StageSetPolicy, options CheckOptions) (warnings Problems, err error) {
	text := celenv.New
	if options.Old != nil && slices.Equal(expressions(&options.Old.Spec), expressions(&policy.Spec)) {
		text = celenv.Stored
	}
	untyped, err := newEnvironments(func(subject celenv.Subject) (*celenv.Compiler, error) {
		return celenv.NewCompiler(text, subject)
	})
	if err != nil {
		return nil, err
	}
	typed, err := typedEnvironments[text]()
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("checking policies: %w", err)
	}
	// Both, because some text is wrong for either alone: a rule that is just a field of the object has the type bool for the
	// typed compiler, and an unknown one for that which is evaluated.
	compiled := compilePolicy(untyped, policy, options.ParamResources)
	problems := compiled.problems
	for _, problem := range compilePolicy(typed, policy, options.ParamResources).problems {
		switch {
		case slices.Contains(problems, problem):
		case strings.HasPrefix(problem.Message, "undefined field"):
			problems = append(problems, problem)
		default:
			warnings = append(warnings, problem)
		}
	}
	if slices.Contains(options.BuiltIn, policy.Name) {
		problems = append(problems, nameTaken(policy.Name))
	}
	constructed, err := compiled.unknownConstructed()
	if err != nil {
		return nil, err
	}
	problems = append(problems, constructed...)
	misplaced, err := compiled.unknownFields()
	if err != nil {
		return nil, err
	}
	if compiled.changesOnly {
		// Where there is no such field, it never changes, so that no update is ever refused.
		problems = append(problems, misplaced...)
	} else {
		warnings = append(warnings, misplaced...)
	}
	return slices.Concat(warnings, compiled.admissionOnlyWarnings(), compiled.deletionWarnings()), problems.orNil()
}

// unknownFields are about paths of fields that StageSets do not have.
func (p *policy) unknownFields() (Problems, error) {
	var found Problems
	if p.target != v1alpha1.TargetStageSet {
		return nil, nil
	}
	for _, r := range p.rules {
		known, err := schema.HasField(splitPath(r.field))
		if err != nil {
			return nil, err
		}
		if !known {
			found = append(found, Problem{
				Policy: p.name, Field: fmt.Sprintf("spec.validations[%s].fieldPath", r.name),
				Message: fmt.Sprintf("%q is not a field of StageSets", r.field),
			})
		}
	}
	return found, nil
}

// unknownConstructed are about fields that mutations set and StageSets do not have: each write that they are asked about would
// be refused.
func (p *policy) unknownConstructed() (Problems, error) {
	var found Problems
	for i, m := range p.mutations {
		if m.Expression == nil {
			continue
		}
		field := fmt.Sprintf("spec.mutations[%d].jsonPatch.expression", i)
		if m.patchType == v1alpha1.PatchTypeApplyConfiguration {
			field = fmt.Sprintf("spec.mutations[%d].applyConfiguration.expression", i)
		}
		issues, err := m.UnknownFields(schema.HasField)
		if err != nil {
			return nil, err
		}
		if len(issues) > 0 {
			found = append(found, newProblems(p.name, field, issues)...)
		}
	}
	return found, nil
}

// deletionWarnings are about expressions that fail for every deletion, which the policy asks for.
func (p *policy) deletionWarnings() Problems {
	const deleted = "reads object, which is null for a DELETE: use oldObject, or ask for request.operation first"
	if p.target != v1alpha1.TargetStageSet || !p.match.operations[v1alpha1.OperationDelete] {
		return nil
	}
	var warnings Problems
	warn := func(field string, x expression) {
		if x.Expression != nil && x.ReadsObject() && !x.TellsDeletion() {
			warnings = append(warnings, Problem{Policy: p.name, Field: field, Message: deleted})
		}
	}
	for _, c := range p.conditions {
		if c.Expression != nil && c.TellsDeletion() {
			return nil
		}
		warn(fmt.Sprintf("spec.matchConditions[%s].expression", c.name), c.expression)
	}
	for _, r := range p.rules {
		warn(fmt.Sprintf("spec.validations[%s].expression", r.name), r.expression)
		if r.messageExpression != nil {
			warn(fmt.Sprintf("spec.validations[%s].messageExpression", r.name), expression{Expression: r.messageExpression})
		}
	}
	return warnings
}

// typedEnvironments know the fields of StageSets. They are built when they are first asked for.
var typedEnvironments = map[celenv.Text]func() (environments, error){
	celenv.New:    sync.OnceValues(func() (environments, error) { return newTypedEnvironments(celenv.New) }),
	celenv.Stored: sync.OnceValues(func() (environments, error) { return newTypedEnvironments(celenv.Stored) }),
}

func newTypedEnvironments(text celenv.Text) (environments, error) {
	schemas, err := schema.Schemas()
	if err != nil {
		return nil, err
	}
	return newEnvironments(func(subject celenv.Subject) (*celenv.Compiler, error) {
		return celenv.NewTypedCompiler(text, subject, schemas, schema.StageSet)
	})
}

// admissionOnlyWarnings are about what the reconciler will not evaluate again.
func (p *policy) admissionOnlyWarnings() Problems {
	const onlyAtAdmission = "reads who asks, or how: it is evaluated at admission alone, and not again by the reconciler"
	var warnings Problems
	for _, c := range p.conditions {
		if c.admissionOnly {
			warnings = append(warnings, Problem{
				Policy: p.name, Field: fmt.Sprintf("spec.matchConditions[%s].expression", c.name),
				Message: onlyAtAdmission + ", and so is the whole policy",
			})
		}
	}
	for _, r := range p.rules {
		if r.admissionOnly && !p.admissionOnly {
			warnings = append(warnings, Problem{
				Policy: p.name, Field: fmt.Sprintf("spec.validations[%s].expression", r.name), Message: onlyAtAdmission,
			})
		}
	}
	return warnings
}

// expressions are the texts of all expressions of spec, in order.
func expressions(spec *v1alpha1.StageSetPolicySpec) []string {
	texts := []string{string(spec.Target)}
	for _, m := range spec.MatchConditions {
		texts = append(texts, m.Expression)
	}
	for _, v := range spec.Variables {
		texts = append(texts, v.Name, v.Expression)
	}
	for _, m := range spec.Mutations {
		for _, x := range []*v1alpha1.MutationExpression{m.ApplyConfiguration, m.JSONPatch} {
			if x != nil {
				texts = append(texts, x.Expression)
			}
		}
	}
	for _, v := range spec.Validations {
		texts = append(texts, v.Expression, v.MessageExpression)
	}
	for _, a := range spec.AuditAnnotations {
		texts = append(texts, a.ValueExpression)
	}
	return texts
}
