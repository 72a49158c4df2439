// Package drift compares what an inventory recorded with what is live: one LIST for each kind and namespace, nothing for
// each object. It never writes and never decides what to do about a difference.
package drift

import (
	"context"
	"errors"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// Generation is 0 where it does not tell of every change of the content.
	Generation  int64
	Labels      map[string]string
	Annotations map[string]string
	Finalizers  []string
	Owners      []metav1.OwnerReference
	// Managed is true when managedFields have an Apply entry of the StageSet; only Observe fills it in.
	Managed bool
	// Deleting is true when the object is being deleted.
	Deleting bool
	Health   health.Result
}

// Snapshot maps the observed keys that exist to what was seen of them.
type Snapshot map[inventory.Key]Live

// LiveOf is what a Snapshot keeps of an object. Only a kind that has a status can be waited for to get one.
func LiveOf(ctx context.Context, reader StatusReader, judge *health.Judge, obj *unstructured.Unstructured) Live {
	seen := judge.Of(ctx, obj)
	if seen.Verdict == health.Silent && !reader.HasStatus(ctx, obj.GroupVersionKind()) {
		seen = health.Result{}
	}
	return Live{
		UID:             obj.GetUID(),
		ResourceVersion: obj.GetResourceVersion(),
		Generation:      generation(obj),
		Labels:          obj.GetLabels(),
		Annotations:     obj.GetAnnotations(),
		Finalizers:      obj.GetFinalizers(),
		Owners:          obj.GetOwnerReferences(),
		Deleting:        obj.GetDeletionTimestamp() != nil,
		Health:          seen,
	}
}

// generation is that of an object; 0 for a PriorityClass, whose own is always 1, whatever is changed in it.
func generation(obj *unstructured.Unstructured) int64 {
	if obj.GroupVersionKind().GroupKind() == (schema.GroupKind{Group: "scheduling.k8s.io", Kind: "PriorityClass"}) {
		return 0
	}
	return obj.GetGeneration()
}

// Wanted is an inventory entry of an object to look at.
type Wanted struct {
	v1.InventoryEntry
	// Judge says whether the object is healthy.
	Judge *health.Judge
}

// observer reads for one StageSet as one account.
type observer struct {
	reader Reader
	owner  ownership.Owner
	// manager is the owner's field manager.
	manager string
	into    Snapshot
}

// Observe reads what is wanted of the owner's objects. An entry that the LIST does not return is fetched by name before it is
// called missing: somebody may have removed its label. Where listing is forbidden, each object is fetched by name. A kind that
// the API server does not serve has no objects.
func Observe(ctx context.Context, reader Reader, owner ownership.Owner, wanted []Wanted) (Snapshot, error) {
	o := observer{reader: reader, owner: owner, manager: owner.FieldManager(), into: Snapshot{}}
	for _, group := range grouped(wanted) {
		if err := o.observe(ctx, group); err != nil {
			return nil, err
		}
	}
	return o.into, nil
}

func (o observer) see(ctx context.Context, key inventory.Key, judge *health.Judge, obj *unstructured.Unstructured) {
	live := LiveOf(ctx, o.reader, judge, obj)
	live.Managed = ownership.Manages(obj, o.manager)
	o.into[key] = live
}

// group is what one LIST covers.
type group struct {
	gvk       schema.GroupVersionKind
	namespace string
	wanted    []Wanted
}

func grouped(all []Wanted) []group {
	type id struct {
		gvk       schema.GroupVersionKind
		namespace string
	}
	index := map[id]int{}
	var groups []group
	for _, wanted := range all {
		at := id{gvk: inventory.EntryGVK(wanted.InventoryEntry), namespace: wanted.Namespace}
		number, known := index[at]
		if !known {
			number = len(groups)
			index[at] = number
			groups = append(groups, group{gvk: at.gvk, namespace: at.namespace})
		}
		groups[number].wanted = append(groups[number].wanted, wanted)
	}
	return groups
}

// byExistence is true when metadata say enough about all that is wanted.
func (g group) byExistence() bool {
	return !slices.ContainsFunc(g.wanted, func(w Wanted) bool { return !w.Judge.ByExistence(g.gvk.GroupKind()) })
}

func (o observer) observe(ctx context.Context, wanted group) error {
	missing := map[inventory.Key]Wanted{}
	for _, one := range wanted.wanted {
		missing[inventory.EntryKey(one.InventoryEntry)] = one
	}
	options := tenant.ListOptions{
		Namespace: wanted.namespace, Selector: o.owner.Selector(), MetadataOnly: wanted.byExistence(),
	}
	err := o.reader.List(ctx, wanted.gvk, options, func(obj *unstructured.Unstructured) {
		key := inventory.Key{
			Group: wanted.gvk.Group, Kind: wanted.gvk.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName(),
		}
		if one, isMissing := missing[key]; isMissing {
			obj.SetGroupVersionKind(wanted.gvk)
			o.see(ctx, key, one.Judge, obj)
			delete(missing, key)
		}
	})
	switch {
	case notServed(err):
		return nil
	case err != nil && !apierrors.IsForbidden(err):
		return err
	}
	return o.fetchMissing(ctx, wanted.gvk, missing)
}

func (o observer) fetchMissing(ctx context.Context, gvk schema.GroupVersionKind, missing map[inventory.Key]Wanted) error {
	for _, key := range slices.SortedFunc(maps.Keys(missing), inventory.Compare) {
		obj, err := o.reader.Get(ctx, gvk, key.Namespace, key.Name)
		switch {
		case apierrors.IsNotFound(err) || notServed(err):
			continue
		case err != nil:
			return err
		}
		o.see(ctx, key, missing[key].Judge, obj)
	}
	return nil
}

// notServed is true when the API server does not know the kind; then no object of it exists.
func notServed(err error) bool {
	var noKind *meta.NoKindMatchError
	var noResource *meta.NoResourceMatchError
	return errors.As(err, &noKind) || errors.As(err, &noResource)
}
