package source

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

// version is the API version that all sources are read in.
var version = schema.GroupVersion{Group: v1.SourceGroup, Version: "v1"}

// APIVersion is the API version that all sources are read in.
const APIVersion = v1.SourceGroup + "/v1"

// maxQuoted bounds how much of another object's message goes into ours.
const maxQuoted = 512

// maxRevision bounds a revision, which goes into the status of every stage that uses the source.
const maxRevision = 1024

// Reader reads objects as the tenant. Its errors are those of the API server, or a failure.Error of its own, which is passed
// on as it is. If it also has the method Identity() string, messages name that account.
type Reader interface {
	// Get reads one object.
	Get(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error)
	// List reads all objects of a kind in a namespace, one after the other.
	List(ctx context.Context, gvk schema.GroupVersionKind, namespace string, visit func(*unstructured.Unstructured)) error
}

// Pin is an artifact that a run works with from its first stage to its last, whatever its source says later.
type Pin struct {
	// Kind, Namespace and Name are those of the source.
	Kind      v1.SourceKind
	Namespace string
	Name      string
	// UID is that of the source object.
	UID types.UID
	// URL is where the artifact is; checked against the allowed hosts.
	URL string
	// Digest is algorithm:hex, in lower case.
	Digest string
	// Revision is the source's name for the artifact, e.g. main@sha1:….
	Revision string
	// Size is that of the compressed archive in bytes; zero if the source does not say.
	Size int64
	// Origin is where the source itself comes from, as its spec says: a URL, or endpoint and name of a bucket. Empty if the
	// spec does not say.
	Origin string
	// Verified is true when the source's condition SourceVerified is True. Who may write the status can forge it.
	Verified bool
}

// String names the source, as in messages.
func (p Pin) String() string { return describe(p.Kind, p.Namespace, p.Name) }

func describe(kind v1.SourceKind, namespace, name string) string {
	return fmt.Sprintf("%s %s/%s", kind, namespace, name)
}

// Resolver pins artifacts. It is safe for concurrent use.
type Resolver struct {
	hosts Hosts
}

// NewResolver is a Resolver that accepts artifacts on hosts only.
func NewResolver(hosts Hosts) *Resolver { return &Resolver{hosts: hosts} }

// Resolve reads the source that ref names and pins its artifact. defaultNamespace is the namespace of a reference that
// names none. As in Flux, an artifact counts as long as it is in the status, also while the source is not Ready or its
// status is of an earlier generation: what was fetched last is what runs.
//
// A producer is found through the ExternalArtifact that points back at it.
//
// Failures are failure.Errors: SourceNotFound and SourceNotReady wait for the source, AccessDenied names account and
// permission, ArtifactFailed says what in the status is refused.
func (r *Resolver) Resolve(
	ctx context.Context, reader Reader, ref v1.SourceReference, defaultNamespace string,
) (Pin, error) {
	named := ref.In(defaultNamespace)
	pin := Pin{Kind: named.Kind, Namespace: named.Namespace, Name: named.Name}
	object, err := find(ctx, reader, ref, &pin)
	if err != nil {
		return Pin{}, err
	}
	pin.UID = object.GetUID()
	pin.Origin = origin(object)
	_, pin.Verified = condition(object, conditionVerified)
	return r.pinArtifact(pin, object)
}

// find reads the source that ref names. For a producer, pin becomes that of the ExternalArtifact.
func find(ctx context.Context, reader Reader, ref v1.SourceReference, pin *Pin) (*unstructured.Unstructured, error) {
	if ref.IsProducer() {
		return findProduced(ctx, reader, ref, pin)
	}
	if ref.APIVersion != "" && ref.APIVersion != APIVersion {
		return nil, failure.NewStalled(v1.ReasonInvalidSpec,
			"sourceRef %s: apiVersion %q is not %s", ref.Name, ref.APIVersion, APIVersion)
	}
	gvk := version.WithKind(string(pin.Kind))
	object, err := reader.Get(ctx, gvk, pin.Namespace, pin.Name)
	if err != nil {
		return nil, readFailure(err, reader, gvk, *pin)
	}
	return object, nil
}

// readFailure maps an error of reading a source.
func readFailure(err error, reader Reader, gvk schema.GroupVersionKind, pin Pin) error {
	switch {
	case apierrors.IsNotFound(err) && !isUnknownResource(err):
		return failure.NewWaiting(v1.ReasonSourceNotFound, 0, "%s does not exist", pin)
	case apierrors.IsForbidden(err):
		return failure.NewStalled(v1.ReasonAccessDenied,
			"%s may not read %s: grant it get on %s named %s in namespace %s",
			identity(reader), pin, resource(gvk), pin.Name, pin.Namespace)
	default:
		return unreadable(err, gvk, pin.String())
	}
}

// unreadable is what an error of the Reader means whatever was read: what says it.
func unreadable(err error, gvk schema.GroupVersionKind, what string) error {
	switch {
	case errors.As(err, new(*failure.Error)):
		return err
	case meta.IsNoMatchError(err) || isUnknownResource(err):
		return failure.NewWaiting(v1.ReasonSourceNotFound, 0, "%s: the cluster does not serve %s of %s; is Flux installed?",
			what, gvk.Kind, gvk.GroupVersion())
	default:
		return failure.NewTransient(v1.ReasonSourceNotReady, "%s cannot be read: %w", what, err)
	}
}

// resource is a kind as permissions name it.
func resource(gvk schema.GroupVersionKind) schema.GroupResource {
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	return plural.GroupResource()
}

// isUnknownResource tells the 404 for a resource that is not served from the 404 for an object that does not exist: only
// the latter names the object.
func isUnknownResource(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsNotFound(err) {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Name == ""
}

// identity is whom reader reads as.
func identity(reader Reader) string {
	if named, ok := reader.(interface{ Identity() string }); ok {
		return named.Identity()
	}
	return "the stage's account"
}

// pinArtifact completes pin from the status of its source.
func (r *Resolver) pinArtifact(pin Pin, object *unstructured.Unstructured) (Pin, error) {
	artifact, found, err := unstructured.NestedMap(object.Object, "status", "artifact")
	if err != nil || !found || len(artifact) == 0 {
		return Pin{}, failure.NewWaiting(v1.ReasonSourceNotReady, 0, "%s has no artifact: %s", pin, readiness(object))
	}
	refuse := func(format string, args ...any) (Pin, error) {
		return Pin{}, failure.NewStalled(v1.ReasonArtifactFailed, "the artifact in the status of %s is refused: %w",
			pin, fmt.Errorf(format, args...))
	}
	pin.URL, _, _ = unstructured.NestedString(artifact, "url")
	if err := r.hosts.checkArtifactURL(pin.URL, pin.Kind, pin.Namespace, pin.Name); err != nil {
		return refuse("of its url, %w", err)
	}
	text, _, _ := unstructured.NestedString(artifact, "digest")
	sum, err := parseDigest(text)
	if err != nil {
		return refuse("%w", err)
	}
	pin.Digest = sum.String()
	pin.Revision, _, _ = unstructured.NestedString(artifact, "revision")
	switch {
	case pin.Revision == "":
		return refuse("it has no revision")
	case len(pin.Revision) > maxRevision:
		return refuse("its revision has %d bytes; at most %d are accepted", len(pin.Revision), maxRevision)
	}
	pin.Size, _, _ = unstructured.NestedInt64(artifact, "size")
	if pin.Size < 0 || pin.Size > MaxDownload {
		return refuse("its size is %d bytes; at most %d are accepted", pin.Size, int64(MaxDownload))
	}
	return pin, nil
}

// readiness is what a source says about itself.
func readiness(object *unstructured.Unstructured) string {
	if suspended, _, _ := unstructured.NestedBool(object.Object, "spec", "suspend"); suspended {
		return "it is suspended"
	}
	ready, _ := condition(object, v1.ConditionReady)
	message, _, _ := unstructured.NestedString(ready, "message")
	reason, _, _ := unstructured.NestedString(ready, "reason")
	if message != "" {
		return quoted(fmt.Sprintf("%s: %s", reason, message))
	}
	return "it does not say why"
}

// conditionVerified is the condition of a source whose signature was checked.
const conditionVerified = "SourceVerified"

// condition is a condition of an object, nil if it has none of the type, and whether it is True.
func condition(object *unstructured.Unstructured, kind string) (found map[string]any, isTrue bool) {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, item := range conditions {
		if found, ok := item.(map[string]any); ok && found["type"] == kind {
			return found, found["status"] == "True"
		}
	}
	return nil, false
}

// origin is where a source comes from.
func origin(object *unstructured.Unstructured) string {
	if url, _, _ := unstructured.NestedString(object.Object, "spec", "url"); url != "" {
		return url
	}
	endpoint, _, _ := unstructured.NestedString(object.Object, "spec", "endpoint")
	bucket, _, _ := unstructured.NestedString(object.Object, "spec", "bucketName")
	if endpoint == "" {
		return ""
	}
	return endpoint + "/" + bucket
}

// quoted is another object's text as part of a message of ours: on one line, and bounded on a rune border.
func quoted(text string) string {
	return failure.Shorten(strings.Join(strings.Fields(strings.ToValidUTF8(text, "\uFFFD")), " "), maxQuoted)
}
