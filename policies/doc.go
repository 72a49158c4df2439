// Package policies is the policy engine: it compiles StageSetPolicies once, fills in what a StageSet leaves unset, and says
// everything that is wrong with it at once. Admission, reconciler and command line share it, so they cannot disagree. It
// never talks to a cluster, never logs, and never stops at the first violation or at a broken policy.
//
// The order is Default, then Validate on its result. Both are evaluated for a request, or, when there is none, for a stored
// StageSet: then as a CREATE by nobody, without the rules that ask who requests it.
package policies
