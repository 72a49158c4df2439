package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/pipeline"
	"github.com/stageset/stageset/reconciler/status"
	"github.com/stageset/stageset/reconciler/teardown"
)

// pruningPause is when objects that are being deleted are looked at again.
const pruningPause = time.Second

// orphans are objects that stay in the cluster although they should be deleted.
type orphans struct {
	keys []inventory.Key
	why  string
}

// delete is a pass of a StageSet that is being deleted: it deletes what is in the inventories, in reverse, and then lets
// go of them and of the StageSet.
func (r *Reconciler) delete(ctx context.Context, snap *snapshot) outcome {
	if !controllerutil.ContainsFinalizer(snap.set, v1.Finalizer) && len(snap.book.Records()) == 0 {
		return outcome{released: true}
	}
	all := inventory.Leftovers(snap.book.Records(), nil)
	switch {
	case terminating(snap.namespace):
		// What is in the namespace goes with it, and so do the accounts and bindings that could delete the rest.
		return r.letGo(ctx, snap, orphans{keys: outside(all, snap.set.Namespace), why: "its namespace is being deleted"})
	case snap.set.Spec.DeletionPolicy == v1.DeletionPolicyOrphan:
		return r.letGo(ctx, snap, orphans{})
	}
	result := r.teardown(snap).Run(ctx, all)
	if err := r.shrink(ctx, snap, result); err != nil {
		return failed(err)
	}
	lost := orphans{keys: result.Orphans, why: "the account that applied them is gone"}
	if len(result.Unseen) == 0 {
		return r.letGo(ctx, snap, lost)
	}
	if err := result.Failure(v1.ReasonPermissionsMissing); err != nil {
		if r.overdue(snap) && failure.From(err).Kind == failure.Stalled {
			return r.letGo(ctx, snap, orphans{keys: unseen(all, result), why: err.Error()})
		}
		return r.stuck(err, lost)
	}
	ended := outcome{again: pruningPause, orphans: lost}
	ended.Kind = status.Failed
	ended.Failure = failure.NewWaiting(v1.ReasonTerminating, pruningPause, "waits for the deletion of %s", names(result.Waiting))
	return ended
}

// stuck is a deletion that the account may not make, or that the API server did not answer to.
func (r *Reconciler) stuck(err error, lost orphans) outcome {
	failing := failure.From(err)
	if failing.Kind == failure.Transient {
		failing.Reason = v1.ReasonTerminating
	}
	ended := failed(failing)
	ended.orphans = lost
	return ended
}

// overdue is true when a deletion has been tried for longer than the reconciler's --max-teardown-wait.
func (r *Reconciler) overdue(snap *snapshot) bool {
	return r.Clock.Since(snap.set.DeletionTimestamp.Time) > r.Options.MaxTeardownWait
}

func terminating(namespace *corev1.Namespace) bool {
	return namespace == nil || !namespace.DeletionTimestamp.IsZero()
}

// outside are the keys of the leftovers that do not go with the namespace.
func outside(leftovers []inventory.Leftover, namespace string) []inventory.Key {
	var keys []inventory.Key
	for _, leftover := range leftovers {
		key := inventory.EntryKey(leftover.Entry)
		if leftover.Prune && key.Namespace != namespace {
			keys = append(keys, key)
		}
	}
	return keys
}

// unseen are the keys of the leftovers that are still there.
func unseen(leftovers []inventory.Leftover, result teardown.Result) []inventory.Key {
	var keys []inventory.Key
	for _, leftover := range leftovers {
		if key := inventory.EntryKey(leftover.Entry); result.Unseen[key] {
			keys = append(keys, key)
		}
	}
	return keys
}

// teardown deletes for the snapshot's StageSet.
func (r *Reconciler) teardown(snap *snapshot) teardown.Teardown {
	return teardown.Teardown{
		Tenants:     r.Pipeline.Tenants,
		Owner:       pipeline.Owner(snap.set),
		Concurrency: r.Options.ApplyConcurrency,
		Overdue: func(id inventory.ID) bool {
			now := r.Clock.Now()
			return now.Sub(snap.memo.since(id, now)) > stageTimeout(snap.set, id.Stage)
		},
	}
}

// stageTimeout is the timeout of a stage by name; of one that is not in spec any more, the StageSet's.
func stageTimeout(set *v1.StageSet, name string) time.Duration {
	for _, stage := range set.Spec.Stages {
		if stage.Name == name {
			return timeout(set, stage)
		}
	}
	return timeout(set, v1.Stage{})
}

// shrink takes out of the inventories what was seen gone.
func (r *Reconciler) shrink(ctx context.Context, snap *snapshot, result teardown.Result) error {
	for _, record := range inventory.Shrink(snap.book.Records(), nil, result.Unseen) {
		var err error
		if len(record.Entries) == 0 {
			err = snap.book.Drop(ctx, record.ID())
		} else {
			err = snap.book.Save(ctx, record)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// letGo removes the inventories and the StageSet's finalizer.
func (r *Reconciler) letGo(ctx context.Context, snap *snapshot, lost orphans) outcome {
	for _, record := range snap.book.Records() {
		if err := snap.book.Drop(ctx, record.ID()); err != nil {
			return failed(err)
		}
	}
	released := snap.set.DeepCopy()
	if controllerutil.RemoveFinalizer(released, v1.Finalizer) {
		patch := client.MergeFromWithOptions(snap.set, client.MergeFromWithOptimisticLock{})
		if err := r.Client.Patch(ctx, released, patch); client.IgnoreNotFound(err) != nil {
			return failed(fmt.Errorf("remove the finalizer: %w", err))
		}
	}
	return outcome{released: true, orphans: lost}
}

// addFinalizer adds the StageSet's finalizer; it is called before the first write to a target.
func (r *Reconciler) addFinalizer(ctx context.Context, snap *snapshot) error {
	held := snap.set.DeepCopy()
	if !controllerutil.AddFinalizer(held, v1.Finalizer) {
		return nil
	}
	patch := client.MergeFromWithOptions(snap.set, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, held, patch); err != nil {
		if apierrors.IsConflict(err) {
			return failure.NewTransient(v1.ReasonProgressing, "the StageSet changed during the pass: it starts again")
		}
		return fmt.Errorf("add the finalizer: %w", err)
	}
	snap.set.SetFinalizers(held.GetFinalizers())
	snap.set.SetResourceVersion(held.GetResourceVersion())
	return nil
}
