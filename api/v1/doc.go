// Package v1 is the contract of the API group stages.metio.wtf, version v1: StageSet, what a tenant writes, and
// StageInventory, what the reconciler remembers of it. It holds types, constants and defaults; it never talks to a cluster
// and never decides anything.
//
// Bounds, enums and uniqueness are in the generated schema (../crds). What depends on more than one field or on the
// namespace is a policy (../../policies/builtin), so that one answer can name every violation.
//
// +kubebuilder:object:generate=true
// +groupName=stages.metio.wtf
package v1
