package tenant

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

const (
	// connectTimeout bounds an attempt to connect to another cluster, and what a proxy on the way says before TLS begins.
	connectTimeout = 5 * time.Second
	// handshakeTimeout bounds TLS handshakes.
	handshakeTimeout = 2 * connectTimeout
)

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// bounded is connect with an end of its own. An HTTP transport goes on connecting when no request waits for it any more,
// with a SOCKS proxy for as long as that likes; from the first byte of a TLS handshake on it has a limit itself.
func bounded(connect dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		connection, err := connect(ctx, network, address)
		if err != nil {
			return nil, err
		}
		deadline, _ := ctx.Deadline()
		if err := connection.SetDeadline(deadline); err != nil {
			return nil, errors.Join(err, connection.Close())
		}
		return &plain{Conn: connection}, nil
	}
}

// plain is a connection with a deadline, which ends when a TLS handshake begins.
type plain struct {
	net.Conn
	once sync.Once
}

// Write implements net.Conn.
func (p *plain) Write(bytes []byte) (int, error) {
	const handshake = 22 // the first byte of a record of that type; no request to a proxy begins with it
	var err error
	if len(bytes) > 0 && bytes[0] == handshake {
		p.once.Do(func() { err = p.SetDeadline(time.Time{}) })
	}
	if err != nil {
		return 0, err
	}
	return p.Conn.Write(bytes)
}
