package policies

import (
	"context"
	"errors"
	"time"

	"k8s.io/utils/clock"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies/internal/celenv"
)

// Validate is everything that the policies with the target StageSet say about in, which Default has been applied to. It is
// decided within the Set's timeout, and before ctx ends: what was not evaluated by then is decided by failurePolicy.
func (s *Set) Validate(ctx context.Context, in Input) Decision {
	return s.decide(ctx, newQuestion(in))
}

// decide is everything that the policies say about q.
func (s *Set) decide(ctx context.Context, q question) Decision {
	candidates := s.candidates(q, func(p *policy) bool {
		return p.unusable != nil || len(p.rules)+len(p.annotations) > 0
	})
	if len(candidates) == 0 {
		return Decision{}
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	q.lookup = s.patientLookup()
	values := s.values(q)
	values.Measured = s.measures()
	evaluation := celenv.NewEvaluation(ctx, values, len(candidates))
	var decision Decision
	observer := s.watcher()
	most := s.shares(ctx, len(candidates))
	for i, p := range candidates {
		end := observer.Begin(p.name, q.target)
		spent := evaluation.Spent()
		said := s.judge(ctx, most(len(candidates)-i), p, q, evaluation)
		end(evaluation.Spent() - spent)
		for _, f := range said.findings {
			if f.failed {
				observer.Failed(p.name, f.kind(p))
			}
		}
		decision.take(p, said, q)
	}
	decision.sort()
	observer.Decided(Outcome{
		Decision: decision, Target: q.target, Stored: q.Request == nil,
		DryRun: q.Request != nil && q.Request.DryRun != nil && *q.Request.DryRun,
	})
	return decision
}

// ruleParams is in the place of the rule if a policy has no parameters.
const ruleParams = "paramRef"

// shares tells how long a policy may take when so many are left of all, itself included. Half of the time is divided among all
// in equal parts, so that none is left without because of others; the rest is for those who come first, a quarter each at most.
func (s *Set) shares(ctx context.Context, all int) func(left int) time.Duration {
	end, _ := ctx.Deadline()
	reserved := until(end) / time.Duration(2*all)
	return func(left int) time.Duration {
		return min(s.timeout/policyTimeShare, until(end)-reserved*time.Duration(left-1))
	}
}

// until is how long it is until the deadline of a context, which is one of the real clock.
func until(deadline time.Time) time.Duration { return deadline.Sub(clock.RealClock{}.Now()) }

// judge is what p has to say about q, with each of its parameters, within the time most.
func (s *Set) judge(ctx context.Context, most time.Duration, p *policy, q question, evaluation *celenv.Evaluation) verdict {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if p.unusable != nil {
		return verdict{findings: []finding{p.failure("policy", "is not usable: "+celenv.OneMessage(p.unusable.Error()))}}
	}
	if q.target == v1alpha1.TargetStageSet {
		q = q.at(q.Object, q.OldObject)
	}
	// Who is not selected is not told that there are no parameters.
	selected, err := p.match.selects(q)
	if err != nil {
		return verdict{findings: []finding{p.failure("matchConstraints", err.Error())}}
	}
	if !selected {
		return verdict{}
	}
	found, used, err := p.params.find(ctx, q.lookup, p.name, q.namespace)
	if err != nil {
		return verdict{findings: []finding{p.failure(ruleParams, celenv.OneMessage(err.Error()))}}
	}
	group := evaluation.Group(p.variables, nil)
	all := verdict{params: used}
	for _, values := range found {
		all.add(p.judgeWith(ctx, q, group.With(values)))
	}
	return all
}

// judgeWith is what p has to say about q with the parameters of group.
func (p *policy) judgeWith(ctx context.Context, q question, group *celenv.Group) verdict {
	said := p.evaluate(q, group.Scope(ctx, fields(q.Object), fields(q.OldObject)))
	if len(said.findings) > 0 && q.update && (q.specUnchanged || p.changesOnly) {
		// The update is not to blame for what was wrong before: the same rules are asked about the old object, as an update
		// that changes nothing.
		before := p.evaluate(q.at(q.OldObject, nil), group.Scope(ctx, fields(q.OldObject), fields(q.OldObject)))
		p.grandfather(said.findings, before.findings, q)
	}
	return said
}

// verdict is what a policy says.
type verdict struct {
	findings []finding
	// messages are the message expressions that could not be evaluated.
	messages []Violation
	// annotations are for the audit event, by key.
	annotations map[string]string
	// params are the objects that it was evaluated with.
	params []Param
}

// add adds what the same policy says with other parameters.
func (v *verdict) add(other verdict) {
	v.findings = append(v.findings, other.findings...)
	v.messages = append(v.messages, other.messages...)
	for key, value := range other.annotations {
		v.annotate(key, value)
	}
}

// annotate adds value to the annotation key. As for ValidatingAdmissionPolicy, different values are joined.
func (v *verdict) annotate(key, value string) {
	if v.annotations == nil {
		v.annotations = map[string]string{}
	}
	if before, ok := v.annotations[key]; ok && before != value {
		value = before + ", " + value
	}
	v.annotations[key] = celenv.OneMessage(value)
}

// evaluate is what the rules of p that do not hold in scope, and its annotations, say. The labels that q has decide whether
// p is evaluated at all.
func (p *policy) evaluate(q question, scope *celenv.Scope) (said verdict) {
	if q.rendersSecret() {
		defer func() { withhold(said.findings) }()
	}
	selected, err := p.match.selects(q)
	if err != nil {
		return verdict{findings: []finding{p.failure("matchConstraints", err.Error())}}
	}
	if !selected {
		return verdict{}
	}
	applies, failed := p.applies(scope)
	if len(failed) > 0 || !applies {
		return verdict{findings: failed}
	}
	for _, r := range p.rules {
		if q.rendersSecret() {
			r.messageExpression = nil
		}
		if !q.stored || !r.admissionOnly {
			p.check(r, scope, &said)
		}
	}
	for _, a := range p.annotations {
		if !q.stored {
			p.annotation(a, scope, &said)
		}
	}
	return said
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
func (p *policy) check(r rule, scope *celenv.Scope, said *verdict) {
	holds, err := r.bool(scope)
	if err != nil {
		f := p.failed(r.name, err)
		f.Field = r.field
		said.findings = append(said.findings, f)
		return
	}
	if holds {
		return
	}
	text, err := r.text(scope)
	if err != nil {
		f := p.failed(r.name, err)
		f.Message = "messageExpression " + f.Message
		said.messages = append(said.messages, f.Violation)
	}
	violation := Violation{Policy: p.name, Rule: r.name, Field: r.field, Message: text, Reason: r.reason}
	said.findings = append(said.findings, finding{Violation: violation})
}

// annotation evaluates a. One that cannot be evaluated is a failure of the policy, as for ValidatingAdmissionPolicy.
func (p *policy) annotation(a annotation, scope *celenv.Scope, said *verdict) {
	err := a.broken
	if err == nil {
		var value string
		var some bool
		if value, some, err = a.Annotation(scope); err == nil && some {
			said.annotate(p.name+"/"+a.key, value)
		}
	}
	if err != nil {
		f := p.failed(a.key, err)
		f.Message = "audit annotation " + f.Message
		said.findings = append(said.findings, f)
	}
}

// text is the message of a violation of r. It is never empty; the error says why it is not that of messageExpression.
func (r rule) text(scope *celenv.Scope) (string, error) {
	if r.messageExpression == nil {
		return r.message, nil
	}
	text, err := r.messageExpression.Message(scope)
	if err != nil || text == "" {
		return r.message, err
	}
	return text, nil
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
	var issues celenv.Issues
	f.uncompiled = errors.As(err, &issues)
	return f
}

func (p *policy) failure(rule, message string) finding {
	return finding{failed: true, Violation: Violation{Policy: p.name, Rule: rule, Field: p.defaultField(), Message: message}}
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
