package app

import (
	"context"
	"errors"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/admission/certs"
	"github.com/stageset/stageset/admission/webhook"
)

// Leader election creates and renews one Lease, and leaves an Event when the leader changes.
//
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=stageset-system,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=stageset-system,resources=leases,resourceNames=stageset-admission,verbs=get;update
// +kubebuilder:rbac:groups="",namespace=stageset-system,resources=events,verbs=create;patch

// permissions is everything that the program does with its own account.
func permissions(options *Options) []authorizationv1.ResourceAttributes {
	needed := append(certs.Permissions(certsOptions(options, "")), webhook.Permissions()...)
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

// checkPermissions asks the API server about every permission. The error has a line for each one that is missing.
func checkPermissions(ctx context.Context, c client.Client, needed []authorizationv1.ResourceAttributes) error {
	var missing []error
	for _, attributes := range needed {
		review := &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes},
		}
		if err := c.Create(ctx, review); err != nil {
			return fmt.Errorf("asking whether this account may %s: %w", describe(attributes), err)
		}
		if !review.Status.Allowed {
			missing = append(missing, fmt.Errorf("this account may not %s", describe(attributes)))
		}
	}
	return errors.Join(missing...)
}

// describe is a permission in words: "update secrets stageset-admission-tls in namespace stageset-system".
func describe(attributes authorizationv1.ResourceAttributes) string {
	text := attributes.Verb + " " + attributes.Resource
	if attributes.Group != "" {
		text += "." + attributes.Group
	}
	if attributes.Name != "" {
		text += " " + attributes.Name
	}
	if attributes.Namespace != "" {
		text += " in namespace " + attributes.Namespace
	}
	return text
}
