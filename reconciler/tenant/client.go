package tenant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/stageset/stageset/api/v1alpha1"
)

// Facts are what policies are told of a target.
type Facts = v1alpha1.TargetFacts

// Client acts on the objects of one cluster as one account. Safe for concurrent use; it may be kept, or made anew by
// Clients.Target whenever it is needed, which costs next to nothing.
//
// Errors are API errors, for apierrors.Is* to tell apart, except: *failure.Error if there is no token any more (see
// Clients.Local), a meta.NoKindMatchError if the cluster does not serve the kind, the context's error if the caller's
// context ended, and one that only Explain knows if no answer came. Nothing is retried but a 401, once. A kind that is not
// served is asked for again after a second at the earliest, so a CRD that has just been established may take that long.
type Client struct {
	cluster  *cluster
	requests rest.Interface
	account  Account
	uid      types.UID
	// caller tells apart who sends what with which credentials.
	caller string
	// impersonator acts as the user that impersonates the account; nil where nobody is impersonated.
	impersonator *Client
	// server is the URL of another cluster's API server; empty for the cluster that StageSets are in.
	server string
	// line is whether that one answers, and call what calls of it consist of; nil for the cluster that StageSets are in.
	line *line
	call askFunc
}

// Account is whom the client acts as.
func (c *Client) Account() Account { return c.account }

// Identity is whom the client acts as, as messages name it.
func (c *Client) Identity() string { return c.account.Identity() }

// Facts are what policies are told of the target of a stage.
func (c *Client) Facts() Facts {
	return Facts{Remote: c.server != "", Server: c.server, ServiceAccountName: c.account.Name}
}

// Get reads an object with everything the server says, managedFields included. The namespace does not matter for kinds
// that have none.
func (c *Client) Get(
	ctx context.Context, gvk schema.GroupVersionKind, namespace, name string,
) (*unstructured.Unstructured, error) {
	request, err := c.request(ctx, http.MethodGet, gvk, namespace, name)
	if err != nil {
		return nil, err
	}
	answer, err := c.ask(ctx, request, gvk)
	if err != nil {
		return nil, err
	}
	return readObject(answer)
}

// ApplyOptions are those of a server-side apply.
type ApplyOptions struct {
	// FieldManager owns what is applied. Required.
	FieldManager string
	// Force takes fields over from other managers instead of answering with a conflict.
	Force bool
	// DryRun goes through admission and validation and stores nothing.
	DryRun bool
	// KeepManagedFields leaves managedFields in the answer.
	KeepManagedFields bool
}

// Apply applies the object server-side and returns it as the server has it now. Errors about a Secret come without the
// server's message where that may quote what is in it.
func (c *Client) Apply(
	ctx context.Context, object *unstructured.Unstructured, options ApplyOptions,
) (*unstructured.Unstructured, error) {
	gvk := object.GroupVersionKind()
	body, err := json.Marshal(object.Object)
	if err != nil {
		return nil, apierrors.NewBadRequest("the object cannot be written as JSON")
	}
	request, err := c.request(ctx, http.MethodPatch, gvk, object.GetNamespace(), object.GetName())
	if err != nil {
		return nil, err
	}
	request.SetHeader("Content-Type", string(types.ApplyYAMLPatchType)).Body(body).Param("fieldManager", options.FieldManager)
	if options.Force {
		request.Param("force", "true")
	}
	if options.DryRun {
		request.Param("dryRun", metav1.DryRunAll)
	}
	answer, err := c.ask(ctx, request, gvk)
	if err != nil {
		return nil, withholdSecret(err, object)
	}
	applied, err := readObject(answer)
	if err == nil && !options.KeepManagedFields {
		applied.SetManagedFields(nil)
	}
	return applied, err
}

// DeleteOptions say which object is meant. UID and ResourceVersion are required: a name alone may lead to somebody else's
// object.
type DeleteOptions struct {
	// UID is the object's; another object of the name is left alone, which is a conflict.
	UID types.UID
	// ResourceVersion is the state that was looked at before the decision; a later one is a conflict.
	ResourceVersion string
	// DependentsFirst keeps the object until its dependents are gone; else they go in the background, after it.
	DependentsFirst bool
}

// propagation is the policy for the dependents.
func (o DeleteOptions) propagation() *metav1.DeletionPropagation {
	if o.DependentsFirst {
		return ptr.To(metav1.DeletePropagationForeground)
	}
	return ptr.To(metav1.DeletePropagationBackground)
}

// Delete deletes the object. It is gone if the server says so or has no such object; it
// is not if it still terminates, or if the answer leaves that open: look again. What a webhook or policy says that denies
// the deletion of a Secret is not in the error.
func (c *Client) Delete(
	ctx context.Context, gvk schema.GroupVersionKind, namespace, name string, options DeleteOptions,
) (gone bool, err error) {
	if options.UID == "" || options.ResourceVersion == "" {
		return false, apierrors.NewBadRequest("a delete without the UID and the resourceVersion of the object is not sent")
	}
	request, err := c.request(ctx, http.MethodDelete, gvk, namespace, name)
	if err != nil {
		return false, err
	}
	body, err := json.Marshal(metav1.DeleteOptions{
		TypeMeta:          metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions:     &metav1.Preconditions{UID: &options.UID, ResourceVersion: &options.ResourceVersion},
		PropagationPolicy: options.propagation(),
	})
	if err != nil {
		return false, err
	}
	answer, err := c.ask(ctx, request.SetHeader("Content-Type", "application/json").Body(body), gvk)
	if missesObject(err) {
		return true, nil
	}
	if err != nil {
		return false, withholdDenial(err, gvk)
	}
	// A Status is the answer when nothing is left; an object that waits for finalizers or a grace period is returned itself.
	// Some kinds are returned even when they are gone; that is left open.
	var left struct {
		Kind   string `json:"kind"`
		Status any    `json:"status"`
	}
	if err := json.Unmarshal(answer, &left); err != nil {
		return false, unreadable(err)
	}
	return left.Kind == "Status" && left.Status == metav1.StatusSuccess, nil
}

// HasStatus says whether objects of the kind have the subresource status. It is true when the cluster cannot be asked.
func (c *Client) HasStatus(ctx context.Context, gvk schema.GroupVersionKind) bool {
	found, err := c.cluster.kinds.get(ctx, c, gvk)
	return err != nil || found.status
}

// Scope says whether objects of the kind live in namespaces, and whether the cluster serves it in any version.
func (c *Client) Scope(ctx context.Context, kind schema.GroupKind) (namespaced, known bool, err error) {
	found, _, err := c.cluster.kinds.any(ctx, c, kind)
	if meta.IsNoMatchError(err) {
		return false, false, nil
	}
	return found.namespaced, err == nil, err
}

// Version is a version that the cluster serves the kind in, the group's preferred one if that has it; empty if it serves
// none.
func (c *Client) Version(ctx context.Context, kind schema.GroupKind) (string, error) {
	_, version, err := c.cluster.kinds.any(ctx, c, kind)
	if meta.IsNoMatchError(err) {
		return "", nil
	}
	return version, err
}

// request leads to an object.
func (c *Client) request(
	ctx context.Context, verb string, gvk schema.GroupVersionKind, namespace, name string,
) (*rest.Request, error) {
	kind, err := c.cluster.kinds.get(ctx, c, gvk)
	if err != nil {
		return nil, err
	}
	if kind.namespaced {
		err = checkSegment("namespace", namespace)
	} else {
		namespace = ""
	}
	if err := errors.Join(checkSegment("name", name), err); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s %q: %v", gvk.Kind, name, err))
	}
	return c.requests.Verb(verb).AbsPath(append(collectionPath(gvk, kind, namespace), name)...), nil
}

// collection leads to the objects of a kind, those of all namespaces if it is empty.
func (c *Client) collection(ctx context.Context, gvk schema.GroupVersionKind, namespace string) (*rest.Request, error) {
	kind, err := c.cluster.kinds.get(ctx, c, gvk)
	if err != nil {
		return nil, err
	}
	if !kind.namespaced {
		namespace = ""
	}
	if !segments(namespace) {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s: namespace %q is not valid", gvk.Kind, namespace))
	}
	return c.requests.Get().AbsPath(collectionPath(gvk, kind, namespace)...), nil
}

func collectionPath(gvk schema.GroupVersionKind, kind kind, namespace string) []string {
	if namespace == "" {
		return []string{versionPath(gvk.GroupVersion()), kind.plural}
	}
	return []string{versionPath(gvk.GroupVersion()), "namespaces", namespace, kind.plural}
}

// ask is send for a kind that is thought to be served. If its path turns out not to exist, the kind is looked up anew the
// next time.
func (c *Client) ask(ctx context.Context, request *rest.Request, gvk schema.GroupVersionKind) ([]byte, error) {
	answer, err := c.send(ctx, request)
	if apierrors.IsNotFound(err) && !missesObject(err) {
		c.cluster.kinds.doubt(gvk.GroupVersion())
		return nil, noMatch(gvk)
	}
	return answer, err
}

// send waits for its turn, sends one request and returns the body of a good answer.
func (c *Client) send(ctx context.Context, request *rest.Request) ([]byte, error) {
	answer, err := c.exchange(ctx, request)
	switch {
	case err == nil:
		return answer, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	default:
		return nil, c.clean(ctx, err)
	}
}

// exchange is send with the error of client-go.
func (c *Client) exchange(ctx context.Context, request *rest.Request) ([]byte, error) {
	unlogged := unlogged(ctx)
	queued, cancel := context.WithTimeout(unlogged, c.cluster.timeout)
	defer cancel()
	done, err := c.takeTurn(queued)
	if err != nil {
		return nil, err
	}
	defer done()
	if c.line == nil {
		return sendOnce(queued, request)
	}
	return c.line.carry(unlogged, c.cluster.timeout, c.call, func(ctx context.Context) ([]byte, error) {
		return sendOnce(ctx, request)
	})
}

// takeTurn waits for a place for a request. Where those at another cluster are taken for long, it is slow for a pass in a
// hurry.
func (c *Client) takeTurn(ctx context.Context) (done func(), err error) {
	pass := passOf(ctx)
	if c.line == nil || !pass.hurries() {
		return c.cluster.turns.take(ctx, c.account.Namespace)
	}
	if pass.hasEnded() {
		return nil, context.DeadlineExceeded
	}
	hurried, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	done, err = c.cluster.turns.take(hurried, c.account.Namespace)
	if err != nil && ctx.Err() == nil {
		pass.met()
		return nil, errSlow()
	}
	return done, err
}

// sendOnce sends a request: client-go would sleep before a retry, and a worker must not.
func sendOnce(ctx context.Context, request *rest.Request) ([]byte, error) {
	result := request.MaxRetries(0).WarningHandlerWithContext(rest.NoWarnings{}).Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}

func readObject(answer []byte) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(answer); err != nil {
		return nil, unreadable(err)
	}
	return object, nil
}
