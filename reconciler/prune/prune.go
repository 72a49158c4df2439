// Package prune deletes what inventories name and nothing else: with UID and resourceVersion preconditions, in reverse
// order, as the account that applied it. It never waits for a deletion to finish and never writes an inventory.
package prune

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

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

// Outcome says what became of the entries of one step, in their order. What is in none of its lists is left for a later call.
type Outcome struct {
	// Gone entries were seen not to exist, or to be objects that are not ours.
	Gone []inventory.Key
	// Kept entries are left where they are because the live object says so.
	Kept []inventory.Key
	// Doubtful entries are left where they are: the live object has the owner's labels, but was made anew, or nothing shows that
	// the owner has applied it. Somebody may have copied it, or restored it from a backup.
	Doubtful []inventory.Key
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

// Run deletes the entries of one step, wave by wave from the last to the first, up to concurrency at once. What is named by
// an object that is still being deleted, as what it depends on, is left for a later call: it may be needed until then.
func Run(ctx context.Context, target Target, owner ownership.Owner, step Step, concurrency int) Outcome {
	all := make([]*found, 0, len(step.Entries))
	for _, entry := range step.Entries {
		all = append(all, &found{entry: entry, gvk: inventory.EntryGVK(entry)})
	}
	each(all, concurrency, func(one *found) { one.look(ctx, target, owner) })
	for _, wave := range inReverse(all) {
		each(wave, concurrency, func(one *found) { one.remove(ctx, target) })
	}
	each(all, concurrency, func(one *found) {
		one.denied = apierrors.IsForbidden(one.err) && one.permitted(ctx, target)
	})
	var outcome Outcome
	for _, one := range all {
		outcome.add(one)
	}
	return outcome
}

// each does something about each entry, up to concurrency at once.
func each(all []*found, concurrency int, do func(*found)) {
	var group errgroup.Group
	group.SetLimit(max(concurrency, 1))
	for _, one := range all {
		group.Go(func() error {
			do(one)
			return nil
		})
	}
	_ = group.Wait() // every error is in what was found
}

func (o *Outcome) add(one *found) {
	key := inventory.EntryKey(one.entry)
	switch {
	case one.err != nil:
		o.Failed = append(o.Failed, Failure{Key: key, Err: one.err, Denied: one.denied})
	case one.fate == gone:
		o.Gone = append(o.Gone, key)
	case one.fate == kept:
		o.Kept = append(o.Kept, key)
	case one.fate == doubtful:
		o.Doubtful = append(o.Doubtful, key)
	case one.fate == waiting:
		if len(o.Waiting) == 0 || one.since.IsZero() || !o.Since.IsZero() && one.since.After(o.Since) {
			o.Since = one.since
		}
		o.Waiting = append(o.Waiting, key)
	}
}
