package policies

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stageset/stageset/policies/internal/celenv"
)

// Review has the API server answer a SubjectAccessReview: it fills in the status, or says why it cannot. It is a client's
// Create.
type Review func(ctx context.Context, review *authorizationv1.SubjectAccessReview) error

// NewAuthorizer is an Authorizer that asks the API server. It keeps no answer, but a Set asks for the same only once a
// request.
func NewAuthorizer(review Review) Authorizer {
	return celenv.AuthorizerFunc(func(ctx context.Context, asked celenv.Check) (bool, string, error) {
		question := newReview(asked)
		err := review(ctx, question)
		if apierrors.IsForbidden(err) { // which names our account, and whoever reads this is no admin
			logr.FromContextOrDiscard(ctx).Error(err, "asking for access")
			return false, "", errors.New("asking for access: this installation may not, which whoever runs it has to repair")
		}
		if err != nil {
			return false, "", fmt.Errorf("asking for access: %w", err)
		}
		status := question.Status
		if !status.Allowed && status.EvaluationError != "" {
			return false, status.Reason, errors.New(status.EvaluationError)
		}
		return status.Allowed && !status.Denied, status.Reason, nil
	})
}

func newReview(asked celenv.Check) *authorizationv1.SubjectAccessReview {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: asked.User.Username, UID: asked.User.UID, Groups: asked.User.Groups,
	}}
	if len(asked.User.Extra) > 0 {
		review.Spec.Extra = map[string]authorizationv1.ExtraValue{}
	}
	for key, values := range asked.User.Extra {
		review.Spec.Extra[key] = authorizationv1.ExtraValue(values)
	}
	if asked.Path != "" {
		review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: asked.Path, Verb: asked.Verb}
		return review
	}
	review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Verb: asked.Verb, Group: asked.Group, Version: asked.Version, Resource: asked.Resource,
		Subresource: asked.Subresource, Namespace: asked.Namespace, Name: asked.Name,
	}
	if len(asked.Fields) > 0 {
		review.Spec.ResourceAttributes.FieldSelector = &authorizationv1.FieldSelectorAttributes{Requirements: asked.Fields}
	}
	if len(asked.Labels) > 0 {
		review.Spec.ResourceAttributes.LabelSelector = &authorizationv1.LabelSelectorAttributes{Requirements: asked.Labels}
	}
	return review
}
