package prune

import (
	"context"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/ownership"
	"github.com/stageset/stageset/reconciler/tenant"
	"github.com/stageset/stageset/reconciler/waves"
)

// fate is what becomes of one entry.
type fate int

const (
	// alive is to be deleted; it stays so if something has to go before.
	alive fate = iota
	gone
	kept
	doubtful
	waiting
)

// found is an entry with what was found of it. Little is kept of the live object: a step may have thousands.
type found struct {
	entry v1.InventoryEntry
	gvk   schema.GroupVersionKind
	fate
	// since is when the deletion of one that waits began; zero if it has only just been asked for.
	since time.Time
	err   error
	// denied is Failure.Denied.
	denied bool
	// as is the live object that was looked at, dependsOn what it names, and dependents are those that name it.
	as         tenant.DeleteOptions
	dependsOn  string
	dependents []*found
}

// look finds out what there is to delete of the entry.
func (f *found) look(ctx context.Context, target Target, owner ownership.Owner) {
	live, err := target.Get(ctx, f.gvk, f.entry.Namespace, f.entry.Name)
	if meta.IsNoMatchError(err) {
		// The version that it was applied in is no longer served; the object may still exist in another.
		if f.gvk.Version, err = target.Version(ctx, f.gvk.GroupKind()); f.gvk.Version == "" {
			f.fate, f.err = gone, err
			return
		}
		live, err = target.Get(ctx, f.gvk, f.entry.Namespace, f.entry.Name)
	}
	switch {
	case apierrors.IsNotFound(err):
		f.fate = gone
	case err != nil:
		f.err = err
	case !ours(live, owner, f.entry):
		f.fate = gone
		if named, stamped := ownership.Of(live); stamped && named == owner {
			f.fate = doubtful
		}
	case f.entry.Keep, ownership.Protected(live):
		f.fate = kept
	default:
		f.as = tenant.DeleteOptions{UID: live.GetUID(), ResourceVersion: live.GetResourceVersion()}
		f.dependsOn = live.GetAnnotations()[v1.AnnotationDependsOn]
		if live.GetDeletionTimestamp() != nil {
			f.fate, f.since = waiting, askedAt(live)
		}
	}
}

// inReverse are the objects that exist, from the last wave to the first: the order in which they were applied, backwards.
// What an annotation names that is not deleted here does not count, nor does a circle, which somebody may have made since.
func inReverse(all []*found) [][]*found {
	byObject := map[*waves.Object]*found{}
	var objects []*waves.Object
	for _, one := range all {
		if one.err == nil && (one.fate == alive || one.fate == waiting) {
			object := &waves.Object{Key: inventory.EntryKey(one.entry), DependsOn: one.dependsOn}
			objects, byObject[object] = append(objects, object), one
		}
	}
	waves.Order([][]*waves.Object{objects})
	inWave := map[int][]*found{}
	for _, object := range objects {
		inWave[object.Wave] = append(inWave[object.Wave], byObject[object])
		for _, named := range object.After() {
			if named.Wave < object.Wave {
				byObject[named].dependents = append(byObject[named].dependents, byObject[object])
			}
		}
	}
	reverse := make([][]*found, 0, len(inWave))
	for _, number := range slices.Backward(slices.Sorted(maps.Keys(inWave))) {
		reverse = append(reverse, inWave[number])
	}
	return reverse
}

// remove deletes an object that was found, unless one that names it is still there, and on its way out.
func (f *found) remove(ctx context.Context, target Target) {
	isLeaving := func(dependent *found) bool {
		return dependent.err == nil && (dependent.fate == waiting || dependent.fate == alive)
	}
	if f.fate != alive || slices.ContainsFunc(f.dependents, isLeaving) {
		return
	}
	deleted, err := target.Delete(ctx, f.gvk, f.entry.Namespace, f.entry.Name, f.as)
	switch {
	case apierrors.IsConflict(err):
		f.fate = waiting // somebody wrote it since it was read; the next look decides anew
	case err != nil:
		f.err = err
	case deleted:
		f.fate = gone
	default:
		f.fate = waiting
	}
}

// askedAt is when the deletion of an object was asked for: its deletionTimestamp is that and the grace period.
func askedAt(live *unstructured.Unstructured) time.Time {
	at := live.GetDeletionTimestamp().Time
	if grace := live.GetDeletionGracePeriodSeconds(); grace != nil {
		at = at.Add(-time.Duration(*grace) * time.Second)
	}
	return at
}

// ours is true when the live object is the one that the entry names, and we have applied it. An entry without a
// resourceVersion was written ahead of an apply whose answer never came: the UID, if it has one, is that of an object which
// was there before and may never have become ours. Then our manager's entry in managedFields decides. An object that another
// StageSet has applied since, which an inventory from a backup may name, is that one's.
func ours(live *unstructured.Unstructured, owner ownership.Owner, entry v1.InventoryEntry) bool {
	if entry.UID != "" && entry.UID != live.GetUID() {
		return false
	}
	if other, stamped := ownership.Of(live); stamped && other != owner && ownership.Manages(live, other.FieldManager()) {
		return false
	}
	return entry.UID != "" && entry.ResourceVersion != "" || ownership.Manages(live, owner.FieldManager())
}

// permitted is true when the account has every permission that deleting the object needs, so that a refusal is not about
// them.
func (f *found) permitted(ctx context.Context, target Facts) bool {
	for _, verb := range []string{"get", "delete"} {
		allowed, err := target.May(ctx, verb, f.gvk, f.entry.Namespace, f.entry.Name)
		if err != nil || !allowed {
			return false
		}
	}
	return true
}
