// Package audit evaluates the StageSets that are stored, whenever a policy, a parameter or a namespace changes and every hour,
// and writes what comes of it, with what else there is to say about each policy, into the policy's status and into metrics.
// So an admin sees what a policy would deny before it does. Of policies about sources and rendered objects, which only the
// reconciler sees, it says that.
//
// It never refuses or changes a StageSet, never writes to a policy but this installation's entry in its status, and has no
// say in what holds: a policy that cannot be evaluated is audited as such, and stops no other.
package audit
