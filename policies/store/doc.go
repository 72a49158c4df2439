// Package store keeps the compiled policies of a cluster: it watches StageSetPolicies and the objects that they have as
// parameters, compiles what changed, and publishes a set that never changes, beside the built-in policies. Both servers use
// it, so that admission and reconciler cannot disagree about which policies there are.
//
// It never evaluates a policy, never writes to the cluster, and never reads a kind as parameters that the installation does
// not allow. While it compiles, what it published before holds on; a policy that does not compile keeps none of the others
// from being published.
package store
