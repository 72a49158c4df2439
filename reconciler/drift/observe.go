// Package drift compares what an inventory recorded with what is live: one LIST for each kind and namespace, nothing for
// each object. It never writes and never decides what to do about a difference.
package drift

import (
	"context"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/health"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/tenant"
)

// Reader reads the target as the stage's account.
type Reader interface {
	// Get reads one object.
	Get(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error)
	// List visits every object of a kind that the options select.
	List(ctx context.Context, gvk schema.GroupVersionKind, options tenant.ListOptions,
		visit func(*unstructured.Unstructured)) error
	StatusReader
}

// StatusReader knows kinds.
type StatusReader interface {
	// HasStatus is true when objects of the kind have a status of their own, or when that cannot be told.
	HasStatus(ctx context.Context, gvk schema.GroupVersionKind) bool
}

// Live is what is kept of a live object: a spec is not.
type Live struct {
	UID             types.UID
	ResourceVersion string
	Generation      int64
	Labels          map[string]string
	Annotations     map[string]string
	Health          health.Result
}

// Snapshot maps the observed keys that exist to what was seen of them.
type Snapshot map[inventory.Key]Live

// LiveOf is what a Snapshot keeps of an object. Only a kind that has a status can be waited for to get one.
func LiveOf(ctx context.Context, reader StatusReader, obj *unstructured.Unstructured) Live {
	seen := health.Of(obj)
	if seen.Verdict == health.Silent && !reader.HasStatus(ctx, obj.GroupVersionKind()) {
		seen = health.Result{}
	}
	return Live{
		UID:             obj.GetUID(),
		ResourceVersion: obj.GetResourceVersion(),
		Generation:      obj.GetGeneration(),
		Labels:          obj.GetLabels(),
		Annotations:     obj.GetAnnotations(),
		Health:          seen,
	}
}

// Observe reads what the entries name. The selector matches everything that the StageSet owns. An entry
// that the LIST does not return is fetched by name before it is called missing: somebody may have removed its label. Where
// listing is forbidden, each object is fetched by name. A kind that the API server does not serve has no objects.
func Observe(ctx context.Context, reader Reader, selector labels.Selector, entries []v1.InventoryEntry) (Snapshot, error) {
	snapshot := Snapshot{}
	for _, group := range grouped(entries) {
		if err := observeGroup(ctx, reader, selector, group, snapshot); err != nil {
			return nil, err
		}
	}
	return snapshot, nil
}

// group is what one LIST covers.
type group struct {
	gvk       schema.GroupVersionKind
	namespace string
	keys      []inventory.Key
}

func grouped(entries []v1.InventoryEntry) []group {
	type id struct {
		gvk       schema.GroupVersionKind
		namespace string
	}
	index := map[id]int{}
	var groups []group
	for _, entry := range entries {
		at := id{gvk: inventory.EntryGVK(entry), namespace: entry.Namespace}
		number, known := index[at]
		if !known {
			number = len(groups)
			index[at] = number
			groups = append(groups, group{gvk: at.gvk, namespace: at.namespace})
		}
		groups[number].keys = append(groups[number].keys, inventory.EntryKey(entry))
	}
	return groups
}

func observeGroup(ctx context.Context, reader Reader, selector labels.Selector, wanted group, into Snapshot) error {
	missing := map[inventory.Key]bool{}
	for _, key := range wanted.keys {
		missing[key] = true
	}
	options := tenant.ListOptions{
		Namespace: wanted.namespace, Selector: selector, MetadataOnly: health.ByExistence(wanted.gvk.GroupKind()),
	}
	err := reader.List(ctx, wanted.gvk, options, func(obj *unstructured.Unstructured) {
		key := inventory.Key{
			Group: wanted.gvk.Group, Kind: wanted.gvk.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName(),
		}
		if missing[key] {
			obj.SetGroupVersionKind(wanted.gvk)
			into[key] = LiveOf(ctx, reader, obj)
			delete(missing, key)
		}
	})
	switch {
	case notServed(err):
		return nil
	case err != nil && !apierrors.IsForbidden(err):
		return err
	}
	return fetchMissing(ctx, reader, wanted, missing, into)
}

func fetchMissing(ctx context.Context, reader Reader, wanted group, missing map[inventory.Key]bool, into Snapshot) error {
	keys := slices.DeleteFunc(slices.Clone(wanted.keys), func(key inventory.Key) bool { return !missing[key] })
	for _, key := range keys {
		obj, err := reader.Get(ctx, wanted.gvk, key.Namespace, key.Name)
		switch {
		case apierrors.IsNotFound(err) || notServed(err):
			continue
		case err != nil:
			return err
		}
		into[key] = LiveOf(ctx, reader, obj)
	}
	return nil
}

// notServed is true when the API server does not know the kind; then no object of it exists.
func notServed(err error) bool {
	var noKind *meta.NoKindMatchError
	var noResource *meta.NoResourceMatchError
	return errors.As(err, &noKind) || errors.As(err, &noResource)
}
