package tenant

import (
	"context"
	"encoding/json"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// SetManagedFields replaces the managedFields of a live object, and nothing else. An object that somebody wrote since it was
// read is a conflict.
func (c *Client) SetManagedFields(
	ctx context.Context, live *unstructured.Unstructured, managed []metav1.ManagedFieldsEntry,
) error {
	gvk := live.GroupVersionKind()
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	body, err := json.Marshal([]operation{
		{Op: "replace", Path: "/metadata/managedFields", Value: managed},
		// A test of this field would fail as an invalid request; written back, it is what an update is compared with.
		{Op: "replace", Path: "/metadata/resourceVersion", Value: live.GetResourceVersion()},
	})
	if err != nil {
		return err
	}
	request, err := c.request(ctx, http.MethodPatch, gvk, live.GetNamespace(), live.GetName())
	if err != nil {
		return err
	}
	_, err = c.ask(ctx, request.SetHeader("Content-Type", string(types.JSONPatchType)).Body(body), gvk)
	return withholdSecret(err, live)
}
