package policies

import (
	"github.com/stageset/stageset/api/v1alpha1"
)

// FailureKind is why something of a policy could not be evaluated.
type FailureKind string

const (
	// FailureText says that it does not compile, or that the policy is not usable as a whole.
	FailureText FailureKind = "text"
	// FailureParams says that its parameters were not found.
	FailureParams FailureKind = "params"
	// FailureLimit says that it needed more than its part of the budget, or of the time.
	FailureLimit FailureKind = "limit"
	// FailureEvaluation says that an expression has no value, because it reads what is not there.
	FailureEvaluation FailureKind = "evaluation"
)

// Outcome is a Decision with what it is about.
type Outcome struct {
	Decision
	// Target is what was evaluated.
	Target v1alpha1.Target
	// Stored tells that there was no request, DryRun that it was one that changes nothing.
	Stored, DryRun bool
}

// Observer is told what evaluating validations takes and leads to, and what cannot be evaluated, of mutations too. It is
// called by many goroutines at once, and must return at once.
type Observer interface {
	// Begin says that one policy is going to be evaluated. What it returns is called at the end, with the cost units spent, as
	// far as they were counted: all of them in the first decision of a Set and in one of 64, and else those of expressions
	// that might come near a limit.
	Begin(policy string, target v1alpha1.Target) (end func(cost uint64))
	// Failed says that something of a policy could not be evaluated.
	Failed(policy string, kind FailureKind)
	// Decided says what came of one Validate, ValidateSource or ValidateManifest.
	Decided(outcome Outcome)
}

// Observed is s with an observer; so are the sets that With makes of it.
func (s *Set) Observed(by Observer) *Set {
	observed := *s
	observed.observer = by
	return &observed
}

// unobserved is the Observer of a Set that has none.
type unobserved struct{}

func (unobserved) Begin(string, v1alpha1.Target) func(uint64) { return func(uint64) {} }
func (unobserved) Failed(string, FailureKind)                 {}
func (unobserved) Decided(Outcome)                            {}

// measuredShare is one of how many decisions is measured as a whole, which takes about twice the time.
const measuredShare = 64

// measures tells whether the cost of everything is counted in the next decision.
func (s *Set) measures() bool {
	return s.observer != nil && s.decided.Add(1)%measuredShare == 1
}

func (s *Set) watcher() Observer {
	if s.observer == nil {
		return unobserved{}
	}
	return s.observer
}

// kind is why f, which failed, could not be evaluated.
func (f finding) kind(p *policy) FailureKind {
	switch {
	case f.uncompiled || p.unusable != nil:
		return FailureText
	case f.limited:
		return FailureLimit
	case f.Rule == ruleParams:
		return FailureParams
	default:
		return FailureEvaluation
	}
}
