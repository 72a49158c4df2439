package policies

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Decision is everything that the policies of a Set say about one StageSet, source or object. The zero Decision is a clean
// bill.
type Decision struct {
	// Denied violations refuse the StageSet, Warned ones are shown to its author, Audited ones are only recorded. A violation
	// may be both in Audited and in one of the others. Each list is sorted by policy, rule, field and message.
	Denied, Warned, Audited []Violation
	// Ignored are the rules that could not be evaluated, of policies that let pass then (failurePolicy Ignore). They are for
	// whoever looks after the policies, and never for the author of the StageSet.
	Ignored []Violation
	// Failed is everything that could not be evaluated, whatever it led to: also message expressions, in whose place the
	// message was used. It is for the status of the policies.
	Failed []Violation
	// AuditAnnotations are for the audit event of the request, by <policy>/<key>.
	AuditAnnotations map[string]string
	// Params are the objects that policies were evaluated with, by policy: what they said then can be looked up by version.
	Params []Param
}

// Violation is one rule that a StageSet does not keep.
type Violation struct {
	// Policy and Rule name the rule. Rule is a match condition, or mutations[i], if it is that which could not be evaluated.
	Policy, Rule string
	// Field is the path of the field that the rule speaks of, such as spec.serviceAccountName.
	Field string
	// Message says what is wrong and what to do about it, on one line of at most 5 KiB.
	Message string
	// Reason is what the rule wants the refusal to be, such as Forbidden; empty is Invalid.
	Reason metav1.StatusReason
}

// String is "<policy>/<rule>: <message>", how a violation is shown everywhere.
func (v Violation) String() string { return v.Policy + "/" + v.Rule + ": " + v.Message }

func compareViolations(a, b Violation) int {
	return cmp.Or(
		cmp.Compare(a.Policy, b.Policy),
		cmp.Compare(a.Rule, b.Rule),
		cmp.Compare(a.Field, b.Field),
		cmp.Compare(a.Message, b.Message),
	)
}

// finding is a violation before it is known what it leads to.
type finding struct {
	Violation
	// failed tells that the rule could not be evaluated, which failurePolicy decides on.
	failed bool
	// limited tells that it was a budget or the deadline that failed it.
	limited bool
	// uncompiled tells that it was its text that failed it.
	uncompiled bool
	// grandfathered tells that the old object violates the rule alike, so that the request is not to blame.
	grandfathered bool
}

// take sorts what the policy p says about q into the lists that its actions say.
func (d *Decision) take(p *policy, said verdict, q question) {
	for _, f := range said.findings {
		// Nobody knows whether what is stored was wrong before.
		f.grandfathered = f.grandfathered || p.changesOnly && q.stored
		d.add(p, f)
	}
	d.Failed = append(d.Failed, said.messages...)
	d.Params = append(d.Params, said.params...)
	for key, value := range said.annotations {
		if d.AuditAnnotations == nil {
			d.AuditAnnotations = map[string]string{}
		}
		d.AuditAnnotations[key] = value
	}
}

func (d *Decision) add(p *policy, f finding) {
	if f.failed {
		d.Failed = append(d.Failed, f.Violation)
	}
	if f.failed && p.ignoresFailures {
		d.Ignored = append(d.Ignored, f.Violation)
		return
	}
	if p.actions.deny && !f.grandfathered {
		d.Denied = append(d.Denied, f.Violation)
	}
	if p.actions.warn || p.actions.deny && f.grandfathered {
		d.Warned = append(d.Warned, f.Violation)
	}
	if p.actions.audit {
		d.Audited = append(d.Audited, f.Violation)
	}
}

// sort sorts each list, and drops what a policy says again with other parameters.
func (d *Decision) sort() {
	for _, list := range []*[]Violation{&d.Denied, &d.Warned, &d.Audited, &d.Ignored, &d.Failed} {
		slices.SortFunc(*list, compareViolations)
		*list = slices.Compact(*list)
	}
	slices.SortStableFunc(d.Params, func(a, b Param) int { return cmp.Compare(a.Policy, b.Policy) })
}
