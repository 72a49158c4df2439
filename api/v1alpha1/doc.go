// Package v1alpha1 is the contract of the API group stages.metio.wtf, version v1alpha1: StageSetPolicy, what a cluster admin
// writes to say which StageSets are accepted and what is filled in where they say nothing. It holds types and constants; it
// never evaluates an expression and never talks to a cluster.
//
// Field names are those of ValidatingAdmissionPolicy, its binding and MutatingAdmissionPolicy, so that who knows those knows
// this, and so that a policy can be exported to them.
//
// +kubebuilder:object:generate=true
// +groupName=stages.metio.wtf
package v1alpha1
