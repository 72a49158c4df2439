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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/health"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/ownership"
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
	Finalizers      []string
	// Owners are the UIDs in the object's ownerReferences.
	Owners []types.UID
	// Managed is true when managedFields have an Apply entry of the StageSet; only Observe fills it in.
	Managed bool
	Health  health.Result
}

// Snapshot maps the observed keys that exist to what was seen of them.
type Snapshot map[inventory.Key]Live

// LiveOf is what a Snapshot keeps of an object. Only a kind that has a status can be waited for to get one.
func LiveOf(ctx context.Context, reader StatusReader, obj *unstructured.Unstructured) Live {
	seen := health.Of(obj)
	if seen.Verdict == health.Silent && !reader.HasStatus(ctx, obj.GroupVersionKind()) {
		seen = health.Result{}
	}
	live := Live{
		UID:             obj.GetUID(),
		ResourceVersion: obj.GetResourceVersion(),
		Generation:      obj.GetGeneration(),
		Labels:          obj.GetLabels(),
		Annotations:     obj.GetAnnotations(),
		Finalizers:      obj.GetFinalizers(),
		Health:          seen,
	}
	for _, owner := range obj.GetOwnerReferences() {
		live.Owners = append(live.Owners, owner.UID)
	}
	return live
}

// observer reads for one StageSet as one account.
type observer struct {
	reader Reader
	owner  ownership.Owner
	into   Snapshot
}

// Observe reads what the owner's entries name. An entry that the LIST does not return is fetched by name before it is called
// missing: somebody may have removed its label. Where listing is forbidden, each object is fetched by name. A kind that the
// API server does not serve has no objects.
func Observe(ctx context.Context, reader Reader, owner ownership.Owner, entries []v1.InventoryEntry) (Snapshot, error) {
	o := observer{reader: reader, owner: owner, into: Snapshot{}}
	for _, group := range grouped(entries) {
		if err := o.observe(ctx, group); err != nil {
			return nil, err
		}
	}
	return o.into, nil
}

func (o observer) see(ctx context.Context, key inventory.Key, obj *unstructured.Unstructured) {
	live := LiveOf(ctx, o.reader, obj)
	live.Managed = ownership.Manages(obj, o.owner.FieldManager())
	o.into[key] = live
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

func (o observer) observe(ctx context.Context, wanted group) error {
	missing := map[inventory.Key]bool{}
	for _, key := range wanted.keys {
		missing[key] = true
	}
	options := tenant.ListOptions{
		Namespace: wanted.namespace, Selector: o.owner.Selector(), MetadataOnly: health.ByExistence(wanted.gvk.GroupKind()),
	}
	err := o.reader.List(ctx, wanted.gvk, options, func(obj *unstructured.Unstructured) {
		key := inventory.Key{
			Group: wanted.gvk.Group, Kind: wanted.gvk.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName(),
		}
		if missing[key] {
			obj.SetGroupVersionKind(wanted.gvk)
			o.see(ctx, key, obj)
			delete(missing, key)
		}
	})
	switch {
	case notServed(err):
		return nil
	case err != nil && !apierrors.IsForbidden(err):
		return err
	}
	return o.fetchMissing(ctx, wanted, missing)
}

func (o observer) fetchMissing(ctx context.Context, wanted group, missing map[inventory.Key]bool) error {
	keys := slices.DeleteFunc(slices.Clone(wanted.keys), func(key inventory.Key) bool { return !missing[key] })
	for _, key := range keys {
		obj, err := o.reader.Get(ctx, wanted.gvk, key.Namespace, key.Name)
		switch {
		case apierrors.IsNotFound(err) || notServed(err):
			continue
		case err != nil:
			return err
		}
		o.see(ctx, key, obj)
	}
	return nil
}

// notServed is true when the API server does not know the kind; then no object of it exists.
func notServed(err error) bool {
	var noKind *meta.NoKindMatchError
	var noResource *meta.NoResourceMatchError
	return errors.As(err, &noKind) || errors.As(err, &noResource)
}
