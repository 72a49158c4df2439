package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/release"
	"github.com/stageset/stageset/reconciler/status"
	"github.com/stageset/stageset/reconciler/teardown"
)

// minBackoff is the first pause after a transient failure.
const minBackoff = time.Second

// maxRetryInterval is the longest default of spec.retryInterval.
const maxRetryInterval = 2 * time.Minute

// conclude writes status and events, and picks when the next pass is due. Nothing else does.
func (r *Reconciler) conclude(ctx context.Context, snap *snapshot, ended outcome) (ctrl.Result, error) {
	name := client.ObjectKeyFromObject(snap.set)
	if ctx.Err() != nil {
		return ctrl.Result{}, nil // the process ends, and what a pass found out that was interrupted is not true
	}
	if ended.postponed {
		log.FromContext(ctx).Info("pass postponed", "message", status.Truncate(ended.Message))
		passes.WithLabelValues(v1.ReasonProgressing).Inc()
		return ctrl.Result{RequeueAfter: ended.again}, nil
	}
	if ended.released {
		r.forget(name)
		passes.WithLabelValues(endedDeleted).Inc()
		return ctrl.Result{}, nil
	}
	before := snap.set.DeepCopy()
	snap.set.Status = status.Next(snap.set, ended.Outcome, r.Clock.Now())
	if !equality.Semantic.DeepEqual(before.Status, snap.set.Status) {
		if err := r.Client.Status().Patch(ctx, snap.set, client.MergeFrom(before)); err != nil {
			passes.WithLabelValues(endedError).Inc()
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		snap.memo.wrote(snap.set)
		r.announce(before, snap.set, ended.Outcome)
	}
	condition := meta.FindStatusCondition(snap.set.Status.Conditions, v1.ConditionReady)
	passes.WithLabelValues(condition.Reason).Inc()
	measureReady(name, condition.Status == metav1.ConditionTrue)
	if ended.Failure != nil {
		log.FromContext(ctx).Info("pass failed", "reason", ended.Failure.Reason, "kind", ended.Failure.Kind.String(),
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
	if ended.Failure == nil || ended.Failure.Kind == failure.Waiting {
		snap.memo.failures = 0
	}
	switch {
	case ended.Failure == nil && ended.again > 0:
		return ended.again
	case ended.Failure == nil:
		return interval
	case ended.Failure.Kind == failure.Waiting:
		if ended.Failure.RetryAfter > 0 {
			return min(ended.Failure.RetryAfter, interval)
		}
		return interval
	}
	snap.memo.failures++
	return backoff(snap.memo.failures, retryInterval(snap.effective, interval))
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

// announce emits an event when what the Ready condition says has changed.
func (r *Reconciler) announce(before, after *v1.StageSet, ended status.Outcome) {
	old := meta.FindStatusCondition(before.Status.Conditions, v1.ConditionReady)
	ready := meta.FindStatusCondition(after.Status.Conditions, v1.ConditionReady)
	if ready == nil || old != nil && old.Reason == ready.Reason && old.Message == ready.Message {
		return
	}
	switch ended.Kind {
	case status.Succeeded, status.Suspended:
		r.event(after, corev1.EventTypeNormal, ready)
	case status.Failed:
		if ended.Failure.Kind != failure.Waiting || ended.Failure.Reason == v1.ReasonHealthCheckTimedOut {
			r.event(after, corev1.EventTypeWarning, ready)
		}
	}
}

func (r *Reconciler) event(about runtime.Object, kind string, ready *metav1.Condition) {
	r.Events.Eventf(about, nil, kind, ready.Reason, "Reconcile", "%s", note(ready.Message))
}

// note cuts a message to what an event takes.
func note(message string) string {
	const maxNote = 1024 // bytes, whatever the API server's own message says of characters
	return failure.Shorten(message, maxNote)
}

// reportOrphans says what stays, where it can be read: on the StageSet, or, when its namespace is going, on the Namespace.
func (r *Reconciler) reportOrphans(ctx context.Context, snap *snapshot, lost teardown.Orphans) {
	if len(lost.Keys) == 0 {
		return
	}
	message := fmt.Sprintf("StageSet %s/%s leaves behind what it applied, because %s: %s",
		snap.set.Namespace, snap.set.Name, lost.Why, lost)
	log.FromContext(ctx).Info(message)
	orphanedObjects.Add(float64(len(lost.Keys)))
	var about runtime.Object = snap.set
	if terminating(snap.namespace) {
		// An event about a Namespace has to be in the namespace default.
		if snap.namespace == nil || !r.Options.Namespaces.watched(metav1.NamespaceDefault) {
			return
		}
		about = snap.namespace
	}
	r.Events.Eventf(about, nil, corev1.EventTypeWarning, v1.EventOrphaned, "Delete", "%s", note(message))
}

// succeeded says what a run that succeeded did.
func succeeded(run *release.Run) string {
	message := fmt.Sprintf("%d objects in %d stages are applied and healthy", len(run.Desired()), run.Stages())
	if kept := run.Kept(); kept != "" {
		message += ", but for what cannot be changed and is kept as it is: " + kept
	}
	return message
}
