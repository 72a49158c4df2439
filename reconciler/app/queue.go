package app

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	crcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/stageset/stageset/reconciler/controller"
	"github.com/stageset/stageset/reconciler/queue"
)

// Pauses after a pass that could not even read or write what is the reconciler's own. controller-runtime's go up to a
// quarter of an hour, which would be how long an API server that is back again is not noticed.
const (
	minRetry = time.Second
	maxRetry = 30 * time.Second
)

// workers are how many StageSets are reconciled at once, and the queue that they come from: fair between namespaces, with
// the delays of client-go.
func workers(concurrent int) crcontroller.Options {
	return crcontroller.Options{
		MaxConcurrentReconciles: concurrent,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minRetry, maxRetry),
		NewQueue: func(
			name string, limiter workqueue.TypedRateLimiter[reconcile.Request],
		) workqueue.TypedRateLimitingInterface[reconcile.Request] {
			fair := queue.New(queue.Options[reconcile.Request]{
				Workers: concurrent,
				Lane:    func(request reconcile.Request) string { return request.Namespace },
				Clock:   clock.RealClock{},
				Waited:  controller.Waited,
			})
			controller.MeasureQueue(fair)
			delaying := workqueue.NewTypedDelayingQueueWithConfig(
				workqueue.TypedDelayingQueueConfig[reconcile.Request]{Name: name, Queue: fair})
			return workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
				workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: name, DelayingQueue: delaying})
		},
	}
}
