// Package controller is the loop: it takes a snapshot, reconciles it, and concludes. Nobody imports it but the wiring. It
// holds no step of its own, and no worker ever waits in it: every wait is a requeue or a watch event.
package controller

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/inventory/store"
	"github.com/stageset/stageset/reconciler/pipeline"
	"github.com/stageset/stageset/reconciler/rules"
	"github.com/stageset/stageset/reconciler/status"
)

// Options say how often and how patiently StageSets are reconciled.
type Options struct {
	// DefaultInterval is the interval of StageSets that set none.
	DefaultInterval time.Duration
	// MaxTeardownWait is how long a deletion that is forbidden is tried before the StageSet is released with a list of what
	// stays.
	MaxTeardownWait time.Duration
	// Home is the namespace that the reconciler itself lives in; empty if it lives in none.
	Home string
	// Namespaces are those that are watched; none is all of them.
	Namespaces Namespaces
	// ApplyConcurrency bounds the requests of one release that are under way at once.
	ApplyConcurrency int
	// Workers is how many passes are made at once. Some of them are left to those that talk to no other cluster.
	Workers int
}

// Recorder emits events, as client-go's events.EventRecorder does.
type Recorder interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Reconciler reconciles StageSets. Its fields are set once and not changed.
type Reconciler struct {
	// Client reads from the cache and writes with the reconciler's own identity: StageSets, their status and finalizer.
	Client client.Client
	// Live reads past the cache.
	Live     client.Reader
	Store    *store.Store
	Policies *rules.Policies
	// PolicyChanges tells when what Policies gives is another.
	PolicyChanges PolicyChanges
	Pipeline      *pipeline.Pipeline
	// Waits are what the parts of Pipeline end.
	Waits  Waits
	Events Recorder
	// Tracing makes the traces of passes.
	Tracing trace.TracerProvider
	Clock   clock.PassiveClock
	Options Options

	memory memory
	places places
}

// snapshot is what a pass starts from.
type snapshot struct {
	set *v1.StageSet
	// effective is the StageSet with what policies fill in, and review what they say of it; the stored one, and unfilled says
	// why, if they cannot.
	effective *v1.StageSet
	review    *rules.Review
	unfilled  error
	// gone is true when the StageSet is, and left something behind.
	gone bool
	// told is what the pass has to say so far, and without takes values of Secrets out of it.
	told    []told
	without []func(string) string
	// known is what the pass has found out so far of what it depends on; see memo.latch.
	known []string
	// namespace is the StageSet's Namespace; nil when there is none.
	namespace *corev1.Namespace
	book      *store.Book
	memo      *memo
	// pass is what requests to other clusters have in common.
	pass *pipeline.Pass
}

// outcome is how a pass ended.
type outcome struct {
	status.Outcome
	// again is when a pass that ended without a failure is due again; zero is the interval.
	again time.Duration
	// postponed is true when the pass found out nothing: it has to start again, after a moment.
	postponed bool
	// released is true when nothing is left to do for a StageSet that is being deleted: it can be let go.
	released bool
}

// Reconcile is one pass.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	ctx, end := r.beginPass(ctx, request.NamespacedName)
	defer end()
	snap, err := r.snapshot(ctx, request)
	switch {
	case ctx.Err() != nil:
		return ctrl.Result{}, nil
	case err != nil:
		passEnded(ctx, endedError)
		return ctrl.Result{}, err
	case snap == nil:
		passEnded(ctx, endedDeleted)
		return ctrl.Result{}, nil
	}
	defer snap.memo.rest()
	if !snap.gone {
		r.fillIn(ctx, snap)
	}
	if ended, over := r.letGoAtOnce(ctx, snap); over {
		r.renounce(ctx, request.NamespacedName)
		return r.conclude(ctx, snap, ended)
	}
	if snap.abroad() {
		return r.reach(ctx, snap)
	}
	r.renounce(ctx, request.NamespacedName)
	return r.conclude(ctx, snap, r.reconcile(ctx, ctx, snap))
}

// snapshot reads what a pass starts from; nil when the StageSet is gone.
func (r *Reconciler) snapshot(ctx context.Context, request ctrl.Request) (*snapshot, error) {
	var set v1.StageSet
	switch err := r.Client.Get(ctx, request.NamespacedName, &set); {
	case apierrors.IsNotFound(err):
		r.forget(ctx, request.NamespacedName)
		return r.abandoned(ctx, request.NamespacedName)
	case err != nil:
		return nil, fmt.Errorf("read StageSet %s: %w", request.NamespacedName, err)
	}
	snap := &snapshot{
		set: &set, effective: &set, memo: r.memory.of(request.NamespacedName, set.UID),
		known: []string{strconv.FormatInt(set.Generation, 10), requests(&set)},
	}
	snap.memo.catchUp(&set)
	snap.pass = &pipeline.Pass{StageSet: request.NamespacedName, Patient: snap.memo.slow}
	var namespace corev1.Namespace
	switch err := r.Client.Get(ctx, client.ObjectKey{Name: set.Namespace}, &namespace); {
	case err == nil:
		snap.namespace = &namespace
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read namespace %s: %w", set.Namespace, err)
	default:
		// The cache may be behind, and policies that look at the Namespace must not be decided without it.
		if err := r.refreshNamespace(ctx, snap); err != nil {
			return nil, err
		}
	}
	var err error
	if snap.book, err = r.Store.Open(ctx, &set); err != nil {
		return nil, err
	}
	return snap, r.reportLost(ctx, snap)
}

// reconcile is a pass that has to talk to the cluster that the StageSet is applied to; bounded is ctx for as long as it may.
func (r *Reconciler) reconcile(ctx, bounded context.Context, snap *snapshot) outcome {
	switch {
	case !snap.set.DeletionTimestamp.IsZero():
		return r.delete(ctx, bounded, snap)
	case snap.effective.Spec.Suspend:
		return r.suspended(bounded, snap)
	}
	return r.release(bounded, snap)
}

// fillIn has policies fill in what the spec leaves open: also how a StageSet is deleted, and whether it is suspended.
func (r *Reconciler) fillIn(ctx context.Context, snap *snapshot) {
	set, review, err := r.Policies.Default(ctx, snap.set, snap.namespace)
	if err != nil {
		snap.unfilled = err
		return
	}
	snap.effective, snap.review = set, review
}

// forget ends what is known of a StageSet that is gone.
func (r *Reconciler) forget(ctx context.Context, name types.NamespacedName) {
	r.renounce(ctx, name)
	r.memory.forget(name)
	r.Pipeline.Forget(name)
	measured.forget(name)
}
