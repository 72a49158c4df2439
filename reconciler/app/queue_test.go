package app

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// After an outage of the API server, however long, everything is tried again within half a minute.
func TestWhatIsOurOwnIsTriedAgainSoon(t *testing.T) {
	limiter, request := workers(1).RateLimiter, reconcile.Request{}
	var got []time.Duration
	for range 7 {
		got = append(got, limiter.When(request))
	}
	want := []time.Duration{
		time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, maxRetry, maxRetry,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
}

// The queue that is made is the fair one: who has much to do does not hold up who has little.
func TestQueueIsFairBetweenNamespaces(t *testing.T) {
	options := workers(2)
	queue := options.NewQueue("test", options.RateLimiter)
	defer queue.ShutDown()
	var first, second, third reconcile.Request
	first.Namespace, first.Name = "team-a", "1"
	second.Namespace, second.Name = "team-a", "2"
	third.Namespace, third.Name = "team-b", "1"
	for _, request := range []reconcile.Request{first, second, third} {
		queue.Add(request)
	}
	for _, want := range []reconcile.Request{first, third} {
		if got, _ := queue.Get(); got != want {
			t.Errorf("%s is next, want %s", got, want)
		}
	}
}
