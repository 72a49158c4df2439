package render

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/stageset/stageset/reconciler/permissions"
)

// Missing is what of its needs a user does not have. It is asked as that user, whom whoever runs the command has to be allowed
// to impersonate.
func (c *Cluster) Missing(ctx context.Context, user string, need Need) (permissions.Permissions, error) {
	config := rest.CopyConfig(c.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	client, err := authorization.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	missing, err := permissions.Missing(ctx, asker{client}, need.Exactly, true)
	if apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("to know what %s may do already, you have to be allowed to impersonate it; for accounts of a "+
			"namespace, the roles edit and admin allow that: %w", user, err)
	}
	return missing, err
}

// asker asks about whoever its client is of.
type asker struct {
	client authorization.AuthorizationV1Interface
}

var _ permissions.Asker = asker{}

// Rules implements permissions.Asker.
func (a asker) Rules(ctx context.Context, namespace string, _ bool) (permissions.Rules, error) {
	review, err := a.client.SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
	}, metav1.CreateOptions{})
	if err != nil {
		return permissions.Rules{}, err
	}
	return permissions.Rules{Resources: review.Status.ResourceRules, Incomplete: review.Status.Incomplete}, nil
}

// Allowed implements permissions.Asker.
func (a asker) Allowed(ctx context.Context, p permissions.Permission) (bool, error) {
	review, err := a.client.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: p.Attributes()},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}
