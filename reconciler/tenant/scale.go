package tenant

import (
	"context"
	"encoding/json"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// HasScale says whether objects of the kind have the subresource scale.
func (c *Client) HasScale(ctx context.Context, gvk schema.GroupVersionKind) (bool, error) {
	found, err := c.cluster.kinds.get(ctx, c, gvk)
	return found.scale, err
}

// Scale reads the subresource scale of an object, an autoscaling/v1 Scale.
func (c *Client) Scale(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string) (
	*unstructured.Unstructured, error,
) {
	request, err := c.request(ctx, http.MethodGet, gvk, namespace, name)
	if err != nil {
		return nil, err
	}
	answer, err := c.ask(ctx, request.Suffix("scale"), gvk)
	if err != nil {
		return nil, err
	}
	return readObject(answer)
}

// ApplyScale applies a Scale server-side, without force, to that subresource of the object of its name, as the field
// manager.
func (c *Client) ApplyScale(
	ctx context.Context, gvk schema.GroupVersionKind, scale *unstructured.Unstructured, manager string,
) error {
	body, err := json.Marshal(scale.Object)
	if err != nil {
		return apierrors.NewBadRequest("the Scale cannot be written as JSON")
	}
	request, err := c.request(ctx, http.MethodPatch, gvk, scale.GetNamespace(), scale.GetName())
	if err != nil {
		return err
	}
	request.Suffix("scale").SetHeader("Content-Type", string(types.ApplyYAMLPatchType)).Body(body).Param("fieldManager", manager)
	_, err = c.ask(ctx, request, gvk)
	return err
}
