package tenant

import (
	"context"
	"encoding/json"
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// May says whether the account has the permission for a verb on an object; an empty name is any object. It is asked of the
// authorizer each time: whether admission, a quota or a policy then refuses the request is another question.
func (c *Client) May(ctx context.Context, verb string, gvk schema.GroupVersionKind, namespace, name string) (bool, error) {
	kind, err := c.cluster.kinds.get(ctx, c, gvk)
	if err != nil {
		return false, err
	}
	if !kind.namespaced {
		namespace = ""
	}
	body, err := json.Marshal(authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectAccessReview"},
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: verb, Group: gvk.Group, Version: gvk.Version, Resource: kind.plural, Name: name,
		}},
	})
	if err != nil {
		return false, err
	}
	request := c.requests.Verb(http.MethodPost).
		AbsPath(versionPath(authorizationv1.SchemeGroupVersion), "selfsubjectaccessreviews").
		SetHeader("Content-Type", "application/json").Body(body)
	answer, err := c.send(ctx, request)
	if err != nil {
		return false, err
	}
	var review authorizationv1.SelfSubjectAccessReview
	if err := json.Unmarshal(answer, &review); err != nil {
		return false, unreadable(err)
	}
	return review.Status.Allowed, nil
}
