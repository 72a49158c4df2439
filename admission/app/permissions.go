package app

import (
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/stageset/stageset/admission/audit"
	"github.com/stageset/stageset/admission/certs"
	"github.com/stageset/stageset/admission/webhook"
	"github.com/stageset/stageset/policies/store"
)

// Leader election creates and renews one Lease, and leaves an Event when the leader changes.
//
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=stageset-system,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=stageset-system,resources=leases,resourceNames=stageset-admission,verbs=get;update
// +kubebuilder:rbac:groups="",namespace=stageset-system,resources=events,verbs=create;patch

// permissions is everything that the program does with its own account.
func permissions(options *Options) []authorizationv1.ResourceAttributes {
	needed := append(certs.Permissions(certsOptions(options, "")), webhook.Permissions()...)
	needed = append(needed, store.Permissions(options.Namespace)...)
	watched, audited := audit.Permissions()
	needed = append(append(needed, audited...), options.Watch.Within(watched)...)
	if !options.LeaderElect {
		return needed
	}
	lease := authorizationv1.ResourceAttributes{
		Group: "coordination.k8s.io", Resource: "leases", Namespace: options.Namespace, Verb: "create",
	}
	needed = append(needed, lease)
	lease.Name = options.objectName()
	for _, verb := range []string{"get", "update"} {
		lease.Verb = verb
		needed = append(needed, lease)
	}
	for _, verb := range []string{"create", "patch"} {
		needed = append(needed, authorizationv1.ResourceAttributes{
			Resource: "events", Namespace: options.Namespace, Verb: verb,
		})
	}
	return needed
}
