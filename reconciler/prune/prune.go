// Package prune deletes what inventories name and nothing else: with UID and resourceVersion preconditions, in reverse
// order, as the account that applied it. It never waits for a deletion to finish and never writes an inventory.
package prune

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/ownership"
	"github.com/stageset/stageset/reconciler/tenant"
)

// Target is a cluster as the account that applied the entries sees it.
type Target interface {
	// Get reads one object.
	Get(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error)
	// Delete deletes one object; gone is true when the answer says that it no longer exists.
	Delete(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string, options tenant.DeleteOptions) (gone bool,
		err error)
	Facts
}

// Facts are what can be known of a target without an object.
type Facts interface {
	// Version is a version that the kind is served in; empty if it is not served at all.
	Version(ctx context.Context, kind schema.GroupKind) (string, error)
	// May says whether the account has the permission for a verb on an object.
	May(ctx context.Context, verb string, gvk schema.GroupVersionKind, namespace, name string) (bool, error)
}

// Outcome says what became of the entries of one step. Keys are in stable order.
type Outcome struct {
	// Gone entries were seen not to exist, or to be objects that are not ours.
	Gone []inventory.Key
	// Kept entries are left where they are because the live object says so.
	Kept []inventory.Key
	// Waiting entries are being deleted; something else, such as a finalizer, has to let go first.
	Waiting []inventory.Key
	// Since is when the deletion of the last of Waiting began; zero when one of them has only just been asked for.
	Since time.Time
	// Failed entries could not be deleted.
	Failed []Failure
}

// Failure is an entry that could not be deleted.
type Failure struct {
	Key inventory.Key
	Err error
	// Denied is true when the account has the permission to delete it, and something else forbids it: a policy, or a webhook.
	Denied bool
	// OutOfReach is true when it is on another cluster that cannot be asked.
	OutOfReach bool
}

// Done is true when nothing of the step is left to be deleted.
func (o Outcome) Done() bool { return len(o.Waiting) == 0 && len(o.Failed) == 0 }

// fate is what became of one entry.
type fate int

const (
	gone fate = iota
	kept
	waiting
)

// result is the fate of an entry; since is when the deletion of one that waits began, zero if it has only just been asked
// for; denied is Failure.Denied.
type result struct {
	fate
	since  time.Time
	denied bool
}

// Run deletes the entries of one step, wave by wave from the last to the first, up to concurrency at once.
func Run(ctx context.Context, target Target, owner ownership.Owner, step Step, concurrency int) Outcome {
	var (
		mu      sync.Mutex
		outcome Outcome
	)
	for _, wave := range step.waves() {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(max(concurrency, 1))
		for _, entry := range wave {
			group.Go(func() error {
				became, err := remove(ctx, target, owner, entry)
				became.denied = apierrors.IsForbidden(err) && permitted(ctx, target, entry)
				mu.Lock()
				defer mu.Unlock()
				outcome.add(inventory.EntryKey(entry), became, err)
				return nil
			})
		}
		_ = group.Wait() // every error is in the outcome
	}
	outcome.sort()
	return outcome
}

func (o *Outcome) add(key inventory.Key, became result, err error) {
	switch {
	case err != nil:
		o.Failed = append(o.Failed, Failure{Key: key, Err: err, Denied: became.denied})
	case became.fate == gone:
		o.Gone = append(o.Gone, key)
	case became.fate == kept:
		o.Kept = append(o.Kept, key)
	default:
		if len(o.Waiting) == 0 || became.since.IsZero() || !o.Since.IsZero() && became.since.After(o.Since) {
			o.Since = became.since
		}
		o.Waiting = append(o.Waiting, key)
	}
}

func (o *Outcome) sort() {
	slices.SortFunc(o.Gone, inventory.Compare)
	slices.SortFunc(o.Kept, inventory.Compare)
	slices.SortFunc(o.Waiting, inventory.Compare)
	slices.SortFunc(o.Failed, func(a, b Failure) int { return inventory.Compare(a.Key, b.Key) })
}

// remove deletes one entry, or finds out that there is nothing to delete.
func remove(ctx context.Context, target Target, owner ownership.Owner, entry v1.InventoryEntry) (result, error) {
	gvk := inventory.EntryGVK(entry)
	live, err := target.Get(ctx, gvk, entry.Namespace, entry.Name)
	if meta.IsNoMatchError(err) {
		// The version that it was applied in is no longer served; the object may still exist in another.
		if gvk.Version, err = target.Version(ctx, gvk.GroupKind()); gvk.Version == "" {
			return result{fate: gone}, err
		}
		live, err = target.Get(ctx, gvk, entry.Namespace, entry.Name)
	}
	switch {
	case apierrors.IsNotFound(err):
		return result{fate: gone}, nil
	case err != nil:
		return result{}, err
	case !ours(live, owner, entry):
		return result{fate: gone}, nil
	case entry.Keep, live.GetAnnotations()[v1.AnnotationPrune] == v1.PruneDisabled:
		return result{fate: kept}, nil
	case live.GetDeletionTimestamp() != nil:
		return result{fate: waiting, since: askedAt(live)}, nil
	}
	options := tenant.DeleteOptions{UID: live.GetUID(), ResourceVersion: live.GetResourceVersion()}
	deleted, err := target.Delete(ctx, gvk, entry.Namespace, entry.Name, options)
	switch {
	case apierrors.IsConflict(err):
		// Somebody wrote it between our read and our delete; the next look decides anew.
		return result{fate: waiting}, nil
	case err != nil:
		return result{}, err
	case deleted:
		return result{fate: gone}, nil
	}
	return result{fate: waiting}, nil
}

// permitted is true when the account has every permission that deleting the entry needs, so that a refusal is not about
// them.
func permitted(ctx context.Context, target Facts, entry v1.InventoryEntry) bool {
	for _, verb := range []string{"get", "delete"} {
		allowed, err := target.May(ctx, verb, inventory.EntryGVK(entry), entry.Namespace, entry.Name)
		if err != nil || !allowed {
			return false
		}
	}
	return true
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
