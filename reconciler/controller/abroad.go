package controller

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/status"
)

// What a pass that talks to another cluster may take: long for one that does not wait for slow clusters, and short for a
// worker; and one that does. What it has done by then is not lost: the next one goes on from there.
const (
	maxAbroadPass  = 30 * time.Second
	maxPatientPass = 10 * time.Minute
)

// maxCall is when a pass is made again, at the latest, that waits to be told whether another cluster answers.
const maxCall = 30 * time.Second

// maxTurn is when a pass is made again, at the latest, that found no place: it is called before that.
const maxTurn = maxPatientPass

// reach is a pass that may talk to other clusters, if there is a place for it.
func (r *Reconciler) reach(ctx context.Context, snap *snapshot) (ctrl.Result, error) {
	name, workers := snap.pass.StageSet, r.Options.Workers
	if !r.places.enter(name, snap.pass.Patient, workers) {
		r.wake(ctx, r.places.due(workers, r.Clock.Now()))
		r.emit(ctx, snap)
		log.FromContext(ctx).V(1).Info("pass waits for its turn to talk to other clusters")
		passEnded(ctx, v1.ReasonProgressing)
		return ctrl.Result{RequeueAfter: maxTurn}, nil
	}
	defer func() { r.wake(ctx, r.places.leave(name, snap.pass.Patient, workers, r.Clock.Now())) }()
	return r.conclude(ctx, snap, r.reconcileAbroad(ctx, snap))
}

// renounce has a StageSet that needs no place let others have it.
func (r *Reconciler) renounce(ctx context.Context, name types.NamespacedName) {
	r.wake(ctx, r.places.renounce(name, r.Options.Workers, r.Clock.Now()))
}

func (r *Reconciler) wake(ctx context.Context, called []types.NamespacedName) {
	for _, name := range called {
		r.Waits.Over(ctx, name)
	}
}

// abroad is true for a StageSet that is applied to another cluster, or has something there.
func (s *snapshot) abroad() bool {
	if s.set.Spec.KubeConfig != nil {
		return true
	}
	for _, record := range s.book.Records() {
		if record.Target.Cluster != v1.ClusterLocal {
			return true
		}
	}
	return false
}

// reconcileAbroad is reconcile as the pass that the snapshot has, and for as long as that may take. One that is not patient
// is postponed when the cluster turns out to be slow, and the next one is patient; whoever has yet to hear from the cluster
// stays as patient as before. So does a StageSet that is too large for a pass that is not patient, however soon each answer
// comes.
func (r *Reconciler) reconcileAbroad(ctx context.Context, snap *snapshot) outcome {
	most := maxAbroadPass
	if snap.pass.Patient {
		most = maxPatientPass
	}
	ctx = snap.pass.Context(ctx)
	bounded, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	began := r.Clock.Now()
	ended := r.reconcile(ctx, bounded, snap)
	late := bounded.Err() != nil && !ended.whole()
	waits := snap.pass.Postponed() && !snap.pass.Slow()
	if !waits {
		snap.memo.slow = snap.pass.Slow() || late || snap.pass.Patient && r.Clock.Since(began) > maxAbroadPass
	}
	switch {
	case ctx.Err() != nil: // the process ends
	case snap.pass.Postponed(), late && !snap.pass.Patient:
		return snap.postponed(waits)
	case late && ended.Failure != nil && snap.set.DeletionTimestamp.IsZero():
		ended.Failure = failure.NewTransient(v1.ReasonTargetUnreachable, tooSlow, most)
	}
	return ended
}

// tooSlow is said of a patient pass that took too long.
const tooSlow = "the other cluster answers so slowly that the pass was ended after %s; the next one goes on"

// whole is true for the outcome of a pass that found out what there was to find out, however long it took.
func (o outcome) whole() bool {
	return o.released || !o.postponed && (o.Kind == status.Succeeded || o.Kind == status.Progressing)
}

// postponed is the outcome of a pass that does not wait for another cluster: to be slow, or to say whether it is there.
func (s *snapshot) postponed(called bool) outcome {
	if called {
		return outcome{postponed: true, again: maxCall, Outcome: status.Outcome{Message: "the other cluster has yet to answer"}}
	}
	return outcome{postponed: true, again: minBackoff, Outcome: status.Outcome{Message: "the other cluster is slow"}}
}
