package tenant

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

const (
	// pageSize is how many objects a page has, unless so many make it longer than maxAnswer.
	pageSize = 500
	// onlyMetadata asks for PartialObjectMetadata; a server that cannot do that sends the objects.
	onlyMetadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)

// ListOptions say what is listed.
type ListOptions struct {
	// Namespace to list; empty lists all, which needs a permission of its own.
	Namespace string
	// Selector chooses by label; nil chooses everything.
	Selector labels.Selector
	// MetadataOnly has the server leave out everything but metadata.
	MetadataOnly bool
}

// List calls visit for every object, with apiVersion and kind as asked for. No more than a page is in memory, of at most 500 objects. The
// objects are not one moment's: a list that outlasts the server's history goes on in the present, so one that is deleted
// and made again meanwhile may be missed. After an error visit has seen a part.
func (c *Client) List(
	ctx context.Context, gvk schema.GroupVersionKind, options ListOptions, visit func(*unstructured.Unstructured),
) error {
	next := page{size: pageSize}
	for range maxPages {
		answer, err := c.listPage(ctx, gvk, options, next)
		again := resumption(err)
		switch {
		case again != "" && again != next.token:
			next.token = again
			continue
		case limitOf(err) != nil && next.size > 1:
			next.size = max(next.size/10, 1)
			continue
		case err != nil:
			return err
		}
		if next.token, err = visitPage(answer, gvk, options.MetadataOnly, visit); err != nil || next.token == "" {
			return err
		}
	}
	return errEndless
}

// page is a part of a list: how many objects it may have, and where it begins.
type page struct {
	size  int
	token string
}

func (c *Client) listPage(
	ctx context.Context, gvk schema.GroupVersionKind, options ListOptions, page page,
) ([]byte, error) {
	request, err := c.collection(ctx, gvk, options.Namespace)
	if err != nil {
		return nil, err
	}
	request.Param("limit", strconv.Itoa(page.size))
	if page.token != "" {
		request.Param("continue", page.token)
	}
	if options.Selector != nil && !options.Selector.Empty() {
		request.Param("labelSelector", options.Selector.String())
	}
	if options.MetadataOnly {
		request.SetHeader("Accept", onlyMetadata)
	}
	return c.ask(ctx, request, gvk)
}

// resumption is where the server offers to go on although the state that the list began with is forgotten (410).
func resumption(err error) string {
	var status apierrors.APIStatus
	if apierrors.IsResourceExpired(err) && errors.As(err, &status) {
		return status.Status().Continue
	}
	return ""
}

// visitPage visits the objects of one page and returns the token of the next, empty on the last.
func visitPage(
	answer []byte, gvk schema.GroupVersionKind, metadataOnly bool, visit func(*unstructured.Unstructured),
) (string, error) {
	var page struct {
		Metadata metav1.ListMeta   `json:"metadata"`
		Items    []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(answer, &page); err != nil {
		return "", unreadable(err)
	}
	for _, item := range page.Items {
		object := &unstructured.Unstructured{}
		// Integers stay integers, as in a single object.
		if err := utiljson.Unmarshal(item, &object.Object); err != nil {
			return "", unreadable(err)
		}
		if metadataOnly {
			object.Object = map[string]any{"metadata": object.Object["metadata"]}
		}
		// The items of a list do not say what they are, or say PartialObjectMetadata.
		object.SetGroupVersionKind(gvk)
		visit(object)
	}
	return page.Metadata.Continue, nil
}
