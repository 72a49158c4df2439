package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/pipeline"
	"github.com/stageset/stageset/reconciler/teardown"
)

// letGoAtOnce is a pass of a StageSet that goes, and of which nothing is to be deleted: no cluster has to be asked. It is over
// then, and if nobody can say whether that is so.
func (r *Reconciler) letGoAtOnce(ctx context.Context, snap *snapshot) (ended outcome, over bool) {
	if snap.gone {
		r.tellOrphans(snap, teardown.Recorded(snap.book, "its finalizer was taken away"))
		return outcome{released: true}, true
	}
	if snap.set.DeletionTimestamp.IsZero() {
		return outcome{}, false
	}
	snap.memo.drop()
	if err := r.refreshNamespace(ctx, snap); err != nil {
		return interrupted(err), true
	}
	snap.tellUnfilled()
	switch {
	case snap.effective.Spec.DeletionPolicy == v1.DeletionPolicyOrphan:
		return r.done(ctx, snap, teardown.Orphans{}), true
	case terminating(snap.namespace):
		// What is in the namespace goes with it, and so do the accounts and bindings that could delete the rest.
		return r.done(ctx, snap, r.teardown(snap).Outside(snap.book)), true
	}
	return outcome{}, false
}

// delete is a pass of a StageSet that is being deleted: it deletes what is in the inventories, in reverse, while bounded lasts,
// and then lets go of them and of the StageSet.
func (r *Reconciler) delete(ctx, bounded context.Context, snap *snapshot) outcome {
	result := r.teardown(snap).Everything(bounded, snap.book)
	late := bounded.Err() != nil
	for _, left := range result.Left() {
		r.tellOrphans(snap, left)
	}
	if err := teardown.Keep(ctx, snap.book, result.Unseen); err != nil {
		return interrupted(err)
	}
	if len(result.Unseen) == 0 {
		return r.done(ctx, snap, teardown.Orphans{})
	}
	switch {
	case snap.pass.Postponed(), ctx.Err() != nil, late && !snap.pass.Patient:
		return interrupted(errCutShort)
	case late:
		return r.stuck(ctx, snap, result, failure.NewStalled(v1.ReasonTargetUnreachable, tooSlow, maxPatientPass))
	}
	if len(result.Failed) > 0 && r.hide(ctx, snap) != nil {
		result = result.Withheld(pipeline.Withheld)
	}
	if err := result.Failure(v1.ReasonPermissionsMissing); err != nil {
		return r.stuck(ctx, snap, result, failure.From(err))
	}
	return failed(failure.NewWaiting(v1.ReasonTerminating, result.Pause, "waits for the deletion of %s", result.WaitsFor()))
}

// errCutShort is why a deletion that has not waited for a cluster goes on in another pass.
var errCutShort = errors.New("the other cluster was not waited for")

// interrupted is the outcome of a deletion that something of our own keeps from going on.
func interrupted(err error) outcome {
	if ended := failed(err); ended.postponed {
		return ended
	}
	return failed(failure.NewTransient(v1.ReasonTerminating, "%w", err))
}

// refreshNamespace reads the Namespace past the cache: its cache may be behind that of the StageSet, and whether the
// namespace is going decides what can be deleted at all.
func (r *Reconciler) refreshNamespace(ctx context.Context, snap *snapshot) error {
	if snap.namespace != nil && terminating(snap.namespace) {
		return nil
	}
	var live corev1.Namespace
	err := r.Live.Get(ctx, client.ObjectKey{Name: snap.set.Namespace}, &live)
	switch {
	case apierrors.IsNotFound(err):
		snap.namespace = nil
	case err != nil:
		return fmt.Errorf("read namespace %s: %w", snap.set.Namespace, err)
	default:
		snap.namespace = &live
	}
	return nil
}

// stuck is a deletion that the account may not make, or that the API server did not answer to. One that is forbidden, or on
// another cluster that is out of reach, for too long, by what the status says, is given up: no process has to remember it.
func (r *Reconciler) stuck(ctx context.Context, snap *snapshot, result teardown.Result, failing *failure.Error) outcome {
	since, stuck := stuckSince(snap.set)
	if failing.Kind == failure.Stalled && stuck && r.Clock.Since(since) > r.Options.MaxTeardownWait {
		return r.done(ctx, snap, result.Abandoned(failing.Error()))
	}
	switch {
	case failing.Kind == failure.Transient:
		failing.Reason = v1.ReasonTerminating
	case result.OutOfReach():
		failing.Reason = v1.ReasonTargetUnreachable
	}
	return failed(failing)
}

// stuckSince is since when the deletion of the StageSet has been forbidden, or its cluster out of reach, without a break; false
// if its status does not say that it has. What was so before the deletion does not count.
func stuckSince(set *v1.StageSet) (time.Time, bool) {
	stalled := meta.FindStatusCondition(set.Status.Conditions, v1.ConditionStalled)
	if stalled == nil || stalled.Status != metav1.ConditionTrue ||
		stalled.Reason != v1.ReasonPermissionsMissing && stalled.Reason != v1.ReasonTargetUnreachable {
		return time.Time{}, false
	}
	if set.DeletionTimestamp.After(stalled.LastTransitionTime.Time) {
		return set.DeletionTimestamp.Time, true
	}
	return stalled.LastTransitionTime.Time, true
}

func terminating(namespace *corev1.Namespace) bool {
	return namespace == nil || !namespace.DeletionTimestamp.IsZero()
}

// teardown deletes for the snapshot's StageSet.
func (r *Reconciler) teardown(snap *snapshot) teardown.Teardown {
	return teardown.Teardown{
		Tenants:     r.Pipeline.Tenants,
		Owner:       pipeline.Owner(snap.set),
		Account:     pipeline.AccountOf(snap.effective),
		Concurrency: r.Options.ApplyConcurrency,
		Clock:       r.Clock,
		Prune:       func(stage string, recorded bool) bool { return prunes(snap, stage, recorded) },
		Timeout:     func(stage string) time.Duration { return stageTimeout(snap.effective, stage) },
		Home:        r.Options.Home,
		Step:        Steps{Clock: r.Clock}.Begin,
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

// prunes says whether a stage, by name, deletes what left it. Where policies cannot fill in the spec, it deletes only if what
// was recorded says so too.
func prunes(snap *snapshot, name string, recorded bool) bool {
	return pipeline.Prunes(snap.effective, name, recorded) && (recorded || snap.unfilled == nil)
}

// done is a deletion with nothing left to do, and with what is lost.
func (r *Reconciler) done(ctx context.Context, snap *snapshot, lost teardown.Orphans) outcome {
	if err := r.nothingMissed(ctx, snap); err != nil {
		return interrupted(err)
	}
	r.tellOrphans(snap, lost)
	return outcome{released: true}
}

// letGo removes the inventories and the StageSet's finalizer.
func (r *Reconciler) letGo(ctx context.Context, snap *snapshot) error {
	if err := teardown.Keep(ctx, snap.book, nil); err != nil {
		return err
	}
	released := snap.set.DeepCopy()
	if controllerutil.RemoveFinalizer(released, v1.Finalizer) {
		patch := client.MergeFromWithOptions(snap.set, client.MergeFromWithOptimisticLock{})
		if err := r.Client.Patch(ctx, released, patch); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("remove the finalizer: %w", err)
		}
	}
	return nil
}

// nothingMissed fails when inventories hold more than the book: a process that has just begun to lead may have a cache that
// does not show yet what the one before it applied.
func (r *Reconciler) nothingMissed(ctx context.Context, snap *snapshot) error {
	live, err := r.liveInventories(ctx, client.ObjectKeyFromObject(snap.set))
	if err != nil {
		return fmt.Errorf("read the inventory before it is given up: %w", err)
	}
	for i := range live {
		if live[i].Spec.StageSet == snap.set.Name && !snap.book.Holds(&live[i]) {
			return failure.NewTransient(v1.ReasonProgressing, "the inventory changed during the pass: it starts again")
		}
	}
	return nil
}

// liveInventories reads the inventories of a StageSet past the cache.
func (r *Reconciler) liveInventories(ctx context.Context, name types.NamespacedName) ([]v1.StageInventory, error) {
	var live v1.StageInventoryList
	owned := client.MatchingLabels{v1.LabelName: v1.LabelValue(name.Name)}
	err := r.Live.List(ctx, &live, client.InNamespace(name.Namespace), owned)
	return live.Items, err
}

// liveSets reads a StageSet past the cache: none if it is gone. It is a list, because to get StageSets is a permission that
// nothing else needs.
func (r *Reconciler) liveSets(ctx context.Context, name types.NamespacedName) ([]v1.StageSet, error) {
	var sets v1.StageSetList
	itself := client.MatchingFields{"metadata.name": name.Name}
	err := r.Live.List(ctx, &sets, client.InNamespace(name.Namespace), itself)
	return sets.Items, err
}

// abandoned is a snapshot of what a StageSet left behind that is gone although it had our finalizer, because somebody took it
// away; nil if there is nothing. Nobody can say any more what was to be deleted, so nothing is; and their own finalizer must
// not keep the inventories, and with them a namespace, for ever. Only inventories that are being deleted count: the garbage
// collector sees to that.
func (r *Reconciler) abandoned(ctx context.Context, name types.NamespacedName) (*snapshot, error) {
	set := &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	book, err := r.Store.Open(ctx, set)
	if err != nil || !book.Terminating() {
		return nil, err
	}
	// The cache may still show what we have just removed ourselves.
	live, err := r.liveInventories(ctx, name)
	if err != nil || len(live) == 0 {
		return nil, err
	}
	sets, err := r.liveSets(ctx, name)
	if err != nil || len(sets) > 0 {
		return nil, err
	}
	snap := &snapshot{
		set: set, effective: set, gone: true, book: book, memo: r.memory.of(name, ""), pass: &pipeline.Pass{StageSet: name},
	}
	return snap, r.refreshNamespace(ctx, snap)
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
