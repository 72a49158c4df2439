package admission_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/e2e/cluster"
)

// load creates StageSets, as dry runs, from several clients at once until it is stopped.
type load struct {
	done   chan struct{}
	wait   sync.WaitGroup
	count  atomic.Int64
	end    func() // may be called again
	mu     sync.Mutex
	failed []error
}

func (i *installation) load(t *testing.T, clients int) *load {
	t.Helper()
	l := &load{done: make(chan struct{})}
	l.end = sync.OnceFunc(func() {
		close(l.done)
		l.wait.Wait()
	})
	t.Cleanup(l.end)
	for n := range clients {
		c, object := i.Client(t), i.stageSet(t, fmt.Sprintf("load-%d", n), validSpec)
		l.wait.Go(func() {
			for {
				select {
				case <-l.done:
					return
				default:
				}
				if err := c.Create(context.Background(), object.DeepCopy(), client.DryRunAll); err != nil {
					l.mu.Lock()
					l.failed = append(l.failed, err)
					l.mu.Unlock()
				}
				l.count.Add(1)
			}
		})
	}
	return l
}

// more waits until n more requests were answered.
func (l *load) more(t *testing.T, n int64) {
	t.Helper()
	want := l.count.Load() + n
	cluster.Eventually(t, func(context.Context) error {
		if got := l.count.Load(); got < want {
			return fmt.Errorf("%d requests so far, waiting for %d", got, want)
		}
		return nil
	})
}

// stop ends the load. Not one of its requests may have failed.
func (l *load) stop(t *testing.T) {
	t.Helper()
	l.end()
	if len(l.failed) > 0 {
		t.Errorf("%d of %d requests failed, the first with: %v", len(l.failed), l.count.Load(), l.failed[0])
	}
}
