package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/release"
	"github.com/stageset/stageset/reconciler/status"
)

// minBackoff is the first pause after a transient failure.
const minBackoff = time.Second

// maxRetryInterval is the longest default of spec.retryInterval.
const maxRetryInterval = 2 * time.Minute

// conclude tells what the pass has noted, writes status, events and metrics, and picks when the next pass is due. Nothing else
// does, but for how long steps take. What stays behind a StageSet that goes is told before nothing remembers it any more.
func (r *Reconciler) conclude(ctx context.Context, snap *snapshot, ended outcome) (ctrl.Result, error) {
	name := client.ObjectKeyFromObject(snap.set)
	r.emit(ctx, snap) // what was done was done, whatever interrupted the pass
	if ctx.Err() != nil {
		return ctrl.Result{}, nil // the process ends, and what a pass found out that was interrupted is not true
	}
	if ended.released {
		err := r.letGo(ctx, snap)
		switch {
		case err == nil:
			r.forget(ctx, name)
			passEnded(ctx, endedDeleted)
			return ctrl.Result{}, nil
		case snap.gone:
			passEnded(ctx, endedError)
			return ctrl.Result{}, err
		}
		ended = interrupted(err)
	}
	ended = ended.redacted(snap.redact)
	if ended.postponed {
		log.FromContext(ctx).Info("pass postponed", "message", status.Truncate(ended.Message))
		passEnded(ctx, v1.ReasonProgressing)
		return ctrl.Result{RequeueAfter: ended.again}, nil
	}
	before := snap.set.DeepCopy()
	snap.set.Status = status.Next(snap.set, ended.Outcome, r.Clock.Now())
	if !equality.Semantic.DeepEqual(before.Status, snap.set.Status) {
		if err := r.Client.Status().Patch(ctx, snap.set, client.MergeFrom(before)); err != nil {
			passEnded(ctx, endedError)
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		snap.memo.wrote(snap.set)
		snap.announce(before, ended.Outcome)
		r.emit(ctx, snap)
	}
	condition := meta.FindStatusCondition(snap.set.Status.Conditions, v1.ConditionReady)
	passEnded(ctx, condition.Reason)
	measured.set(name, state{
		ready: condition.Status == metav1.ConditionTrue, reason: condition.Reason, looping: snap.memo.looping != "",
	})
	if ended.Failure != nil {
		passFailed(ctx, ended.Failure)
		log.FromContext(ctx).Info("pass failed", "reason", ended.Failure.Reason, "failure", ended.Failure.Kind.String(),
			"stage", ended.Failure.Stage, "message", status.Truncate(ended.Failure.Error()))
	}
	return ctrl.Result{RequeueAfter: r.pause(snap, ended)}, nil
}

// pause is when the next pass is due if no watch asks for one earlier. What is stalled backs off like what is transient:
// permissions and CRDs are mended without the StageSet changing, and often a moment later, because they came with the same
// kubectl apply.
func (r *Reconciler) pause(snap *snapshot, ended outcome) time.Duration {
	interval := r.interval(snap.effective)
	snap.memo.latch(snap.known)
	if ended.Failure != nil && ended.Failure.Kind != failure.Waiting {
		snap.memo.failures++
		return backoff(snap.memo.failures, retryInterval(snap.effective, interval))
	}
	snap.memo.failures = 0
	pause := interval
	switch {
	case ended.Failure == nil && ended.again > 0:
		pause = ended.again
	case ended.Failure != nil && ended.Failure.RetryAfter > 0:
		pause = min(ended.Failure.RetryAfter, interval)
	}
	if ended.Running != nil {
		pause = min(pause, lookPause)
	}
	return pause
}

func (r *Reconciler) interval(set *v1.StageSet) time.Duration {
	if set.Spec.Interval != nil && set.Spec.Interval.Duration > 0 {
		return set.Spec.Interval.Duration
	}
	return r.Options.DefaultInterval
}

func retryInterval(set *v1.StageSet, interval time.Duration) time.Duration {
	if set.Spec.RetryInterval != nil && set.Spec.RetryInterval.Duration > 0 {
		return set.Spec.RetryInterval.Duration
	}
	return min(interval, maxRetryInterval)
}

// backoff doubles from one second to the limit.
func backoff(failures int, limit time.Duration) time.Duration {
	const maxDoublings = 16
	return min(minBackoff<<min(failures-1, maxDoublings), max(limit, minBackoff))
}

// announce notes an event when what the Ready condition says has changed.
func (s *snapshot) announce(before *v1.StageSet, ended status.Outcome) {
	old := meta.FindStatusCondition(before.Status.Conditions, v1.ConditionReady)
	ready := meta.FindStatusCondition(s.set.Status.Conditions, v1.ConditionReady)
	if ready == nil || old != nil && old.Reason == ready.Reason && old.Message == ready.Message {
		return
	}
	news := told{reason: ready.Reason, action: "Reconcile", note: ready.Message}
	switch {
	case isWarning(ready, ended):
		news.kind = corev1.EventTypeWarning
	case ended.Kind == status.Succeeded, ended.Kind == status.Suspended:
		news.kind = corev1.EventTypeNormal
	default:
		return // a wait is no event
	}
	s.tell(news)
}

// isWarning is true when something is wrong, and not only waited for.
func isWarning(ready *metav1.Condition, ended status.Outcome) bool {
	switch {
	case ready.Status != metav1.ConditionFalse, ready.Reason == v1.ReasonSuspended:
		return false
	case ended.Running != nil && ready.Reason == ended.Running.Reason:
		return true
	}
	return ended.Kind == status.Failed &&
		(ended.Failure.Kind != failure.Waiting || ended.Failure.Reason == v1.ReasonHealthCheckTimedOut)
}

// succeeded says what a run that succeeded did.
func succeeded(run *release.Run) string {
	message := fmt.Sprintf("%d objects in %d stages are applied and healthy", len(run.Desired()), run.Stages())
	if kept := run.Kept(); kept != "" {
		message += ", but for what cannot be changed and is kept as it is: " + kept
	}
	return message
}
