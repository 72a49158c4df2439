package tenant

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// connectTimeout bounds an attempt to connect to another cluster, up to the first word from there.
	connectTimeout = 5 * time.Second
	// handshakeTimeout bounds the TLS handshake of a server that has begun to talk.
	handshakeTimeout = 2 * connectTimeout
	// gatePause is for how long nobody tries to connect again after an attempt that failed.
	gatePause = 15 * time.Second
)

// gate is on the way to a server. An attempt to connect, which is over with the first word from there, holds a worker, and a
// server that is gone has to be found out by one of them, not by all: after a failure everybody is told so at once, for a
// while, and then one at a time tries.
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
	if err != nil {
		g.leave(err)
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	if err := connection.SetReadDeadline(deadline); err != nil {
		g.leave(err)
		return nil, errors.Join(err, connection.Close())
	}
	return &firstWord{Conn: connection, gate: g}, nil
}

// firstWord is a connection on which nothing was heard yet. A machine whose API server hangs still accepts connections: only
// what comes back says that somebody is there.
type firstWord struct {
	net.Conn
	gate *gate
	once sync.Once
}

// Read implements net.Conn.
func (f *firstWord) Read(into []byte) (int, error) {
	n, err := f.Conn.Read(into)
	f.once.Do(func() {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			f.gate.leave(err)
		} else {
			f.gate.leave(nil) // also for who hangs up: that keeps nobody waiting
		}
		if err == nil {
			err = f.SetReadDeadline(time.Time{})
		}
	})
	return n, err
}

// Close implements net.Conn. Who closes it unheard needs it no more.
func (f *firstWord) Close() error {
	f.once.Do(func() { f.gate.leave(context.Canceled) })
	return f.Conn.Close()
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
