package process

import (
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
)

// New connections go where they are to go now, and old ones stay where they are.
func TestForward(t *testing.T) {
	var target atomic.Int64
	port := FreePort(t)
	Forward(t, port, func() int { return int(target.Load()) })
	connect := func() net.Conn {
		t.Helper()
		connection, err := net.Dial("tcp", loopback(port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { connection.Close() })
		return connection
	}
	says := func(connection net.Conn, want string) {
		t.Helper()
		if _, err := connection.Write([]byte("?")); err != nil {
			t.Error(err)
		}
		got := make([]byte, len(want))
		if _, err := io.ReadFull(connection, got); err != nil || string(got) != want {
			t.Errorf("it says %q (%v), want %q", got, err, want)
		}
	}
	if got, err := io.ReadAll(connect()); len(got) > 0 {
		t.Errorf("somebody says %q (%v), and there is nobody", got, err)
	}
	target.Store(answering(t, "first"))
	first := connect()
	says(first, "first")
	target.Store(answering(t, "other"))
	says(connect(), "other")
	says(first, "first")
}

// answering is a port where each byte is answered with the text.
func answering(t *testing.T, text string) int64 {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				for question := make([]byte, 1); ; {
					if _, err := connection.Read(question); err != nil {
						return
					}
					fmt.Fprint(connection, text)
				}
			}()
		}
	}()
	return int64(listener.Addr().(*net.TCPAddr).Port)
}
