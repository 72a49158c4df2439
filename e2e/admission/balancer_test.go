package admission_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/stageset/stageset/e2e/process"
)

// balancer is what a Service is to the API server: one address, whose new connections go to replicas that were ready when
// somebody last looked, and whose old connections stay where they are.
type balancer struct {
	mu       sync.Mutex
	replicas []*replica
	ready    atomic.Pointer[[]*replica]
	next     atomic.Uint64
}

// balance listens on a port of loopback until the end of the test.
func balance(t *testing.T, port int, replicas ...*replica) *balancer {
	t.Helper()
	b := &balancer{replicas: replicas}
	b.look(t.Context())
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { wait.UntilWithContext(ctx, b.look, 100*time.Millisecond) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	process.Forward(t, port, b.port)
	return b
}

// add has the balancer look at one replica more.
func (b *balancer) add(r *replica) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replicas = append(b.replicas, r)
}

// look finds out who is ready. One look ends before the next begins, so that the last to begin has the last word.
func (b *balancer) look(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ready []*replica
	for _, r := range b.replicas {
		if r.ready(ctx) {
			ready = append(ready, r)
		}
	}
	b.ready.Store(&ready)
}

// port is where the next connection goes; 0 if nobody is ready.
func (b *balancer) port() int {
	ready := *b.ready.Load()
	if len(ready) == 0 {
		return 0
	}
	return ready[b.next.Add(1)%uint64(len(ready))].port
}
