package controller

import (
	"context"
	"sync"
	"time"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/pipeline"
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

// abroad are the passes that talk to other clusters. How fast those answer is in the hands of whoever writes a kubeconfig,
// so that these passes never have all workers, and those that wait for slow clusters have few.
type abroad struct {
	mu  sync.Mutex
	all int
	// patient are those that wait, and of each namespace.
	patient int
	of      map[string]int
}

// enter begins a pass with that many workers; false if there is no place for it now. Three in four may be abroad, and one in
// four wait there; a namespace may have one that waits if it has none, or fewer than are free, as in package queue.
func (a *abroad) enter(pass *pipeline.Pass, workers int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all >= max(workers-workers/4, 1) {
		return false
	}
	if pass.Patient {
		namespace := pass.StageSet.Namespace
		free := max(workers/4, 1) - a.patient
		if free <= 0 || a.of[namespace] > 0 && a.of[namespace] >= free {
			return false
		}
		if a.of == nil {
			a.of = map[string]int{}
		}
		a.patient++
		a.of[namespace]++
	}
	a.all++
	return true
}

// leave ends a pass that was entered.
func (a *abroad) leave(pass *pipeline.Pass) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all--
	if !pass.Patient {
		return
	}
	a.patient--
	namespace := pass.StageSet.Namespace
	if a.of[namespace]--; a.of[namespace] == 0 {
		delete(a.of, namespace)
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
// stays as patient as before.
func (r *Reconciler) reconcileAbroad(ctx context.Context, snap *snapshot) outcome {
	most := maxAbroadPass
	if snap.pass.Patient {
		most = maxPatientPass
	}
	bounded, cancel := context.WithTimeout(snap.pass.Context(ctx), most)
	defer cancel()
	ended := r.reconcile(bounded, snap)
	late := bounded.Err() != nil && ended.Failure != nil
	waits := snap.pass.Postponed() && !snap.pass.Slow()
	if !waits {
		snap.memo.slow = snap.pass.Slow() || late
	}
	switch {
	case ctx.Err() != nil: // the process ends
	case snap.pass.Postponed(), late && !snap.pass.Patient:
		return snap.postponed(waits)
	case late:
		ended.Failure = failure.NewTransient(v1.ReasonTargetUnreachable, "the other cluster answers so slowly that the pass was "+
			"ended after %s; the next one goes on", most)
	}
	return ended
}

// postponed is the outcome of a pass that does not wait for another cluster: to be slow, or to say whether it is there.
func (s *snapshot) postponed(called bool) outcome {
	if called {
		return outcome{postponed: true, again: maxCall, Outcome: status.Outcome{Message: "the other cluster has yet to answer"}}
	}
	return outcome{postponed: true, again: minBackoff, Outcome: status.Outcome{Message: "the other cluster is slow"}}
}
