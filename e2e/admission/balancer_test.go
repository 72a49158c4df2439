package admission_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
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
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{replicas: replicas}
	b.look(t.Context())
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { wait.UntilWithContext(ctx, b.look, 100*time.Millisecond) })
	running.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { b.carry(ctx, connection) })
		}
	})
	t.Cleanup(func() {
		cancel()
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
		running.Wait()
	})
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

// carry copies both ways until one side has nothing more to say.
func (b *balancer) carry(ctx context.Context, client net.Conn) {
	defer client.Close()
	ready := *b.ready.Load()
	if len(ready) == 0 {
		return
	}
	target := ready[b.next.Add(1)%uint64(len(ready))]
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", target.port))
	if err != nil {
		return
	}
	defer server.Close()
	stop := context.AfterFunc(ctx, func() { client.Close() })
	defer stop()
	go func() {
		_, _ = io.Copy(server, client)
		server.Close()
	}()
	_, _ = io.Copy(client, server)
}
