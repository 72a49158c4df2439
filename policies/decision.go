package policies

// Decision is everything that the policies of a Set say about one StageSet. The zero Decision is a clean bill.
type Decision struct {
	// Denied violations refuse the StageSet, Warned ones are shown to its author, Audited ones are only recorded. A violation
	// may be both in Audited and in one of the others. Each list is sorted by policy, rule and field.
	Denied, Warned, Audited []Violation
}

// Violation is one rule that a StageSet does not keep.
type Violation struct {
	// Policy and Rule name the rule.
	Policy, Rule string
	// Field is the path of the field that the rule speaks of, such as spec.serviceAccountName.
	Field string
	// Message says what is wrong and what to do about it, on one line of at most 5 KiB.
	Message string
}

// String is "<policy>/<rule>: <message>", how a violation is shown everywhere.
func (v Violation) String() string { return v.Policy + "/" + v.Rule + ": " + v.Message }
