package tenant

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// connectTimeout bounds an attempt to connect to another cluster, and the TLS handshake after it.
	connectTimeout = 5 * time.Second
	// gatePause is for how long nobody tries to connect again after an attempt that failed.
	gatePause = 15 * time.Second
)

// gate is on the way to a server. An attempt to connect holds a worker, and a server that is gone has to be found out by one
// of them, not by all: after a failure everybody is told so at once, for a while, and then one at a time tries.
type gate struct {
	connect func(ctx context.Context, network, address string) (net.Conn, error)
	clock   clock.PassiveClock

	mu sync.Mutex
	// failed is why the last attempt failed; nil if it did not.
	failed error
	until  time.Time
	// trying is true while somebody finds out whether it still fails.
	trying bool
}

// dial connects, or says at once that it failed a moment ago.
func (g *gate) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if err := g.enter(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	connection, err := g.connect(ctx, network, address)
	g.leave(err)
	return connection, err
}

func (g *gate) enter() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failed == nil {
		return nil
	}
	if g.trying || g.clock.Now().Before(g.until) {
		return g.failed
	}
	g.trying = true
	return nil
}

func (g *gate) leave(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.trying = false
	if errors.Is(err, context.Canceled) {
		return // nobody needs the connection any more, which says nothing about the server
	}
	g.failed, g.until = err, g.clock.Now().Add(gatePause)
}
