package source

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

// findProduced reads the ExternalArtifact that points back at the producer which ref names, and makes pin its own. The
// producer itself is not read: its kind is anybody's, and all that counts is the artifact. Only its own namespace is looked
// at, so that nobody elsewhere can offer an artifact in its name; two that do so there are an error, because one of them is
// not what its owner thinks.
func findProduced(ctx context.Context, reader Reader, ref v1.SourceReference, pin *Pin) (*unstructured.Unstructured, error) {
	if ref.APIVersion == "" {
		return nil, failure.NewStalled(v1.ReasonInvalidSpec, "sourceRef %s: kind %q is none of ExternalArtifact, GitRepository, "+
			"OCIRepository, Bucket, and so that of a producer: set apiVersion to its API version", ref.Name, ref.Kind)
	}
	producer := fmt.Sprintf("%s %s/%s", schema.GroupKind{Group: ref.Group(), Kind: string(ref.Kind)}, pin.Namespace, ref.Name)
	gvk := version.WithKind(string(v1.SourceKindExternalArtifact))
	var found []*unstructured.Unstructured
	err := reader.List(ctx, gvk, pin.Namespace, func(object *unstructured.Unstructured) {
		if PointsBack(object, ref) {
			found = append(found, object)
		}
	})
	switch {
	case apierrors.IsForbidden(err):
		return nil, failure.NewStalled(v1.ReasonAccessDenied,
			"%s may not look for the ExternalArtifact of %s: grant it list on %s in namespace %s",
			identity(reader), producer, resource(gvk), pin.Namespace)
	case err != nil:
		return nil, unreadable(err, gvk, "the ExternalArtifact of "+producer)
	case len(found) == 0:
		return nil, failure.NewWaiting(v1.ReasonSourceNotFound, 0,
			"no ExternalArtifact in namespace %s has a spec.sourceRef that points back at %s", pin.Namespace, producer)
	case len(found) > 1:
		return nil, failure.NewStalled(v1.ReasonArtifactFailed, "more than one ExternalArtifact points back at %s (%s): delete the "+
			"wrong one, or name the right one in sourceRef", producer, names(found))
	}
	pin.Kind, pin.Name = v1.SourceKindExternalArtifact, found[0].GetName()
	return found[0], nil
}

// PointsBack says whether an ExternalArtifact is of the producer that ref names. A version is only a way to look at an object,
// and Flux lets a pointer leave the whole apiVersion out. Nobody can offer an artifact for a producer of another namespace.
func PointsBack(artifact *unstructured.Unstructured, ref v1.SourceReference) bool {
	back, _, _ := unstructured.NestedStringMap(artifact.Object, "spec", "sourceRef")
	pointer := v1.SourceReference{APIVersion: back["apiVersion"], Kind: v1.SourceKind(back["kind"])}
	return pointer.Kind == ref.Kind && back["name"] == ref.Name &&
		(pointer.APIVersion == "" || pointer.Group() == ref.Group()) &&
		(back["namespace"] == "" || back["namespace"] == artifact.GetNamespace())
}

// names lists objects by name, some of them.
func names(objects []*unstructured.Unstructured) string {
	const shown = 5
	list := make([]string, 0, len(objects))
	for _, object := range objects {
		list = append(list, object.GetName())
	}
	slices.Sort(list)
	return strings.Join(failure.AndMore(list[:min(len(list), shown)], len(list)-shown), ", ")
}
