package policies

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stageset/stageset/policies/internal/celenv"
)

// Validate is everything that the policies say about in, which Default has been applied to. It is decided within the Set's
// timeout, and before ctx ends: what was not evaluated by then is decided by failurePolicy.
func (s *Set) Validate(ctx context.Context, in Input) Decision {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	q := newQuestion(in)
	candidates := s.candidates(q, func(p *policy) bool { return p.unusable != nil || len(p.rules) > 0 })
	evaluation := celenv.NewEvaluation(ctx, s.values(q), len(candidates))
	var decision Decision
	for _, p := range candidates {
		for _, f := range s.judge(ctx, p, q, evaluation) {
			decision.add(p, f)
		}
	}
	decision.sort()
	return decision
}

// judge is what p has to say about q.
func (s *Set) judge(ctx context.Context, p *policy, q question, evaluation *celenv.Evaluation) []finding {
	ctx, cancel := context.WithTimeout(ctx, s.timeout/policyTimeShare)
	defer cancel()
	group := evaluation.Group(p.variables, p.params)
	findings := p.findings(q, group.Scope(ctx, fields(q.Object), fields(q.OldObject)), q.Object, q.OldObject)
	if len(findings) > 0 && q.specUnchanged {
		// The update is not to blame for what was wrong before: the same rules are asked about the old object, as an update
		// that changes nothing.
		before := p.findings(q, group.Scope(ctx, fields(q.OldObject), fields(q.OldObject)), q.OldObject)
		grandfather(findings, before, q)
	}
	return findings
}

// findings are the rules of p that do not hold in scope. The labels of objects decide whether p is evaluated at all.
func (p *policy) findings(q question, scope *celenv.Scope, objects ...*unstructured.Unstructured) []finding {
	if p.unusable != nil {
		return []finding{p.failure("policy", "is not usable: "+celenv.OneMessage(p.unusable.Error()))}
	}
	selected, err := p.match.selects(q, objects...)
	if err != nil {
		return []finding{p.failure("matchConstraints", err.Error())}
	}
	if !selected {
		return nil
	}
	applies, failed := p.applies(scope)
	if len(failed) > 0 || !applies {
		return failed
	}
	var findings []finding
	for _, r := range p.rules {
		if q.stored && r.admissionOnly {
			continue
		}
		if f, found := p.check(r, scope); found {
			findings = append(findings, f)
		}
	}
	return findings
}

// applies tells whether all match conditions hold. As for ValidatingAdmissionPolicy, a condition that is false outweighs
// those that cannot be evaluated; without one they are failures.
func (p *policy) applies(scope *celenv.Scope) (bool, []finding) {
	var failed []finding
	for _, c := range p.conditions {
		holds, err := c.bool(scope)
		if err != nil {
			f := p.failed(c.name, err)
			f.Message = "match condition " + f.Message
			failed = append(failed, f)
			continue
		}
		if !holds {
			return false, nil
		}
	}
	return len(failed) == 0, failed
}

// check evaluates r.
func (p *policy) check(r rule, scope *celenv.Scope) (finding, bool) {
	holds, err := r.bool(scope)
	if err != nil {
		f := p.failed(r.name, err)
		f.Field = r.field
		return f, true
	}
	if holds {
		return finding{}, false
	}
	return finding{Violation: Violation{Policy: p.name, Rule: r.name, Field: r.field, Message: r.text(scope)}}, true
}

// text is the message of a violation of r. It is never empty.
func (r rule) text(scope *celenv.Scope) string {
	if r.messageExpression == nil {
		return r.message
	}
	text, err := r.messageExpression.Message(scope)
	if err != nil || text == "" {
		return r.message
	}
	return text
}

func (e expression) bool(scope *celenv.Scope) (bool, error) {
	if e.broken != nil {
		return false, e.broken
	}
	return e.Bool(scope)
}

// failed is the finding that rule could not be evaluated because of err.
func (p *policy) failed(rule string, err error) finding {
	var stopped *celenv.EvalError
	f := p.failure(rule, failureText(err))
	f.limited = errors.As(err, &stopped) && stopped.Limit
	return f
}

func (p *policy) failure(rule, message string) finding {
	return finding{failed: true, Violation: Violation{Policy: p.name, Rule: rule, Field: "spec", Message: message}}
}

// failureText says why something could not be evaluated.
func failureText(err error) string {
	var issues celenv.Issues
	var failed *celenv.EvalError
	switch {
	case errors.As(err, &issues):
		return celenv.OneMessage("does not compile: " + issues.Error())
	case errors.As(err, &failed):
		return celenv.OneMessage("cannot be evaluated: " + failed.Error())
	default:
		return celenv.OneMessage(err.Error())
	}
}
