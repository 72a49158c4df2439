package process

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
)

// maxAsking is how many permissions are asked about at once: a program that watches many namespaces asks about each of them.
const maxAsking = 16

// CheckPermissions asks the API server whether the account of config has each permission, so that a half-upgraded
// installation says at its start what it lacks. The error has a line for each permission that is missing.
func CheckPermissions(ctx context.Context, config *rest.Config, needed []authorizationv1.ResourceAttributes) error {
	reviews, err := authorizationclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	missing := make([]error, len(needed))
	asking, ctx := errgroup.WithContext(ctx)
	asking.SetLimit(maxAsking)
	for i, attributes := range needed {
		asking.Go(func() error {
			review := &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes},
			}
			answer, err := reviews.SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("asking whether this account may %s: %w", describe(attributes), err)
			}
			if !answer.Status.Allowed {
				missing[i] = fmt.Errorf("this account may not %s", describe(attributes))
			}
			return nil
		})
	}
	if err := asking.Wait(); err != nil {
		return err
	}
	return errors.Join(missing...)
}

// describe is a permission in words: "update secrets stageset-admission-tls in namespace stageset-system".
func describe(attributes authorizationv1.ResourceAttributes) string {
	text := attributes.Verb + " " + attributes.Resource
	if attributes.Subresource != "" {
		text += "/" + attributes.Subresource
	}
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
