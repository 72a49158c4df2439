package source

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stageset/stageset/api/v1"
)

// Reader reads one object as the tenant. Its errors are those of the API server, or a failure.Error of its own, which is
// passed on as it is. If it also has the method Identity() string, messages name that account.
type Reader interface {
	Get(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error)
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
}

// Resolver pins artifacts.
type Resolver struct {
	hosts Hosts
}

// NewResolver is a Resolver that accepts artifacts on hosts only.
func NewResolver(hosts Hosts) *Resolver { return &Resolver{hosts: hosts} }

// Resolve reads the source that ref names and pins its artifact. defaultNamespace is the namespace of a reference that
// names none.
func (r *Resolver) Resolve(ctx context.Context, reader Reader, ref v1.SourceReference, defaultNamespace string) (Pin, error) {
	return Pin{}, errors.New("not implemented")
}
