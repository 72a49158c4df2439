package process

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
)

// Forward listens on a port of loopback until the end of the test, as a Service does: each connection is carried to the port
// of loopback that to gives for it, and stays there. It is closed at once if to gives 0.
func Forward(t testing.TB, port int, to func() int) {
	t.Helper()
	listener, err := net.Listen("tcp", loopback(port))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { carry(ctx, connection, to()) })
		}
	})
	t.Cleanup(func() {
		cancel()
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
		running.Wait()
	})
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// carry copies both ways until one side has nothing more to say.
func carry(ctx context.Context, client net.Conn, port int) {
	defer client.Close()
	if port == 0 {
		return
	}
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", loopback(port))
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
