package tenant

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Reader reads, as one account, the objects of the cluster that StageSets are in. It cannot write, and so is never taken for
// the client of a target, which may be on another cluster. Its errors are those of a Client.
type Reader struct{ client *Client }

// Local is a reader that acts as the account. It makes sure that there is a token, so a missing account shows here and not
// in the midst of the work; the reader then fetches the token anew for every request and may be kept as long as wanted. ctx
// bounds the wait of this caller only. An account without a name is the reconciler's own, where Options.Own allows it.
//
// Every error is a *failure.Error: ServiceAccountRequired (Stalled) if no account is named and the reconciler's own is not
// allowed, ServiceAccountNotFound (Stalled) if the account or its namespace does not exist, PermissionsMissing (Stalled) if
// the reconciler itself may not request the token, InvalidSpec (Stalled) if it is no name, TargetUnreachable (Transient) if
// the API server does not answer.
func (c *Clients) Local(ctx context.Context, account Account) (*Reader, error) {
	client, err := c.local(ctx, account)
	if err != nil {
		return nil, err
	}
	return &Reader{client: client}, nil
}

// Account is whom the reader acts as.
func (r *Reader) Account() Account { return r.client.Account() }

// Identity is whom the reader acts as, as messages name it.
func (r *Reader) Identity() string { return r.client.Identity() }

// Get reads one object.
func (r *Reader) Get(
	ctx context.Context, gvk schema.GroupVersionKind, namespace, name string,
) (*unstructured.Unstructured, error) {
	return r.client.Get(ctx, gvk, namespace, name)
}

// List reads all objects of a kind in a namespace, one after the other.
func (r *Reader) List(
	ctx context.Context, gvk schema.GroupVersionKind, namespace string, visit func(*unstructured.Unstructured),
) error {
	return r.client.List(ctx, gvk, ListOptions{Namespace: namespace}, visit)
}
