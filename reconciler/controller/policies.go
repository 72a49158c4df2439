package controller

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1 "github.com/stageset/stageset/api/v1"
)

// PolicyChanges tells when policies hold, and when they have changed.
type PolicyChanges interface {
	// Wait waits until all policies are compiled for the first time; the error is that of ctx.
	Wait(ctx context.Context) error
	// Subscribe is a channel that tells of every change after it.
	Subscribe() <-chan struct{}
}

// policySource wakes every StageSet when a policy, or a parameter of one, has changed. No pass begins before all policies
// are compiled: what one denies must not slip through a restart.
type policySource struct {
	source.Source
	changes PolicyChanges
}

// WaitForSync implements source.SyncingSource: workers start after it.
func (s policySource) WaitForSync(ctx context.Context) error { return s.changes.Wait(ctx) }

func (r *Reconciler) policySource(mgr ctrl.Manager) (source.SyncingSource, error) {
	told, events := r.PolicyChanges.Subscribe(), make(chan event.GenericEvent)
	err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-told:
			}
			select {
			case <-ctx.Done():
				return nil
			case events <- event.GenericEvent{Object: &v1.StageSet{}}: // which stands for all
			}
		}
	}))
	wake := handler.EnqueueRequestsFromMapFunc(r.everyStageSet)
	return policySource{Source: source.Channel(events, wake), changes: r.PolicyChanges}, err
}

// everyStageSet are all StageSets that the cache has.
func (r *Reconciler) everyStageSet(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.listed(ctx)
}
