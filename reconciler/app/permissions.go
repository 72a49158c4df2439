package app

import (
	authorizationv1 "k8s.io/api/authorization/v1"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/policies/store"
)

// Tokens are requested for the accounts that StageSets name, by a role of its own, so that an installation can be confined to
// the namespaces that it is bound in; leader election creates and renews one Lease, and leaves an Event when the leader
// changes.
//
// +kubebuilder:rbac:groups="",resources=serviceaccounts/token,verbs=create,roleName=stageset-reconciler-tokens
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=stageset-system,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=stageset-system,resources=leases,resourceNames=stageset-reconciler,verbs=get;update
// +kubebuilder:rbac:groups="",namespace=stageset-system,resources=events,verbs=create;patch

const (
	groupSources = "source.toolkit.fluxcd.io"
	groupEvents  = "events.k8s.io"
)

// permissions is everything that the program does with its own account. Whether it may request tokens in a namespace is
// asked where it does: an installation may be confined to some.
func permissions(options *Options) []authorizationv1.ResourceAttributes {
	needed := options.Watch.Within(watched())
	needed = append(needed, store.Permissions(options.Namespace)...)
	needed = append(needed, grants(authorizationv1.ResourceAttributes{Resource: "namespaces"}, "get", "list", "watch")...)
	if options.LeaderElect {
		lease := authorizationv1.ResourceAttributes{
			Group: "coordination.k8s.io", Resource: "leases", Namespace: options.Namespace,
		}
		needed = append(needed, grants(lease, "create")...)
		lease.Name = options.leaseName()
		needed = append(needed, grants(lease, "get", "update")...)
		needed = append(needed, grants(authorizationv1.ResourceAttributes{Resource: "events", Namespace: options.Namespace},
			"create", "patch")...)
	}
	return needed
}

// watched is what the program does in each namespace that it watches.
func watched() []authorizationv1.ResourceAttributes {
	needed := grants(authorizationv1.ResourceAttributes{Group: v1.GroupVersion.Group, Resource: "stagesets"},
		"list", "watch", "patch")
	needed = append(needed, grants(authorizationv1.ResourceAttributes{
		Group: v1.GroupVersion.Group, Resource: "stagesets", Subresource: "status"}, "patch")...)
	needed = append(needed, grants(authorizationv1.ResourceAttributes{
		Group: v1.GroupVersion.Group, Resource: "stageinventories"},
		"list", "watch", "create", "update", "delete")...)
	for _, resource := range []string{"externalartifacts", "gitrepositories", "ocirepositories", "buckets"} {
		needed = append(needed, grants(authorizationv1.ResourceAttributes{Group: groupSources, Resource: resource},
			"list", "watch")...)
	}
	return append(needed, grants(authorizationv1.ResourceAttributes{Group: groupEvents, Resource: "events"},
		"create", "patch")...)
}

// grants is the permission for each of the verbs.
func grants(on authorizationv1.ResourceAttributes, verbs ...string) []authorizationv1.ResourceAttributes {
	granted := make([]authorizationv1.ResourceAttributes, 0, len(verbs))
	for _, verb := range verbs {
		on.Verb = verb
		granted = append(granted, on)
	}
	return granted
}
