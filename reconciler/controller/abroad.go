package controller

import (
	"context"
	"sync"
	"time"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

// maxAbroadPass is how long a pass that talks to another cluster may take. What it has done by then is not lost: the next
// one goes on from there.
const maxAbroadPass = 10 * time.Minute

// abroad are the passes that talk to other clusters. How fast those answer is in the hands of whoever writes a kubeconfig,
// so that they never have all workers, and those of one namespace never all that the others may have.
type abroad struct {
	mu         sync.Mutex
	all        int
	namespaces map[string]int
}

// enter begins a pass, of which there may be so many at once; false if there is no place for it now.
func (a *abroad) enter(namespace string, most int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all >= max(most, 1) || a.namespaces[namespace] >= max(most/2, 1) {
		return false
	}
	if a.namespaces == nil {
		a.namespaces = map[string]int{}
	}
	a.all++
	a.namespaces[namespace]++
	return true
}

// leave ends a pass that was entered.
func (a *abroad) leave(namespace string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all--
	if a.namespaces[namespace]--; a.namespaces[namespace] == 0 {
		delete(a.namespaces, namespace)
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

// reconcileAbroad is reconcile within maxAbroadPass.
func (r *Reconciler) reconcileAbroad(ctx context.Context, snap *snapshot) outcome {
	bounded, cancel := context.WithTimeout(ctx, maxAbroadPass)
	defer cancel()
	ended := r.reconcile(bounded, snap)
	if bounded.Err() != nil && ended.Failure != nil {
		ended.Failure = failure.NewTransient(v1.ReasonTargetUnreachable, "the other cluster answers so slowly that the pass was "+
			"ended after %s; the next one goes on", maxAbroadPass)
	}
	return ended
}
