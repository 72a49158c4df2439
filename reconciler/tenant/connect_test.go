package tenant

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stageset/stageset/reconciler/dial"
	"github.com/stageset/stageset/reconciler/kubeconfig"
)

// A server or proxy that stalls before TLS is established has a connection for a while, and not for as long as it likes,
// also when the request that it was made for is given up.
func TestConnectionsThatStall(t *testing.T) {
	for name, tc := range map[string]struct {
		proxy, says string
		within      time.Duration
	}{
		"a silent server":                       {"", "", handshakeTimeout},
		"a server that begins to talk":          {"", "\x16", handshakeTimeout},
		"a silent SOCKS proxy":                  {"socks5://proxy", "", connectTimeout},
		"a SOCKS proxy that begins to talk":     {"socks5://proxy", "\x05", connectTimeout},
		"a SOCKS proxy that does not connect":   {"socks5://proxy", "\x05\x00", connectTimeout},
		"a silent HTTP proxy":                   {"http://proxy", "", connectTimeout},
		"an HTTP proxy that begins to talk":     {"http://proxy", "H", connectTimeout},
		"an HTTP proxy that connects to naught": {"http://proxy", "HTTP/1.1 200 OK\r\n\r\n", handshakeTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				remotes := &remotes{dialer: dial.New(nil)}
				transport, err := remotes.transport(kubeconfig.Access{Server: "https://there", Proxy: tc.proxy})
				if err != nil {
					t.Fatal(err)
				}
				ended := make(chan time.Duration, 1)
				transport.DialContext = bounded(func(context.Context, string, string) (net.Conn, error) {
					here, there := net.Pipe()
					go stall(there, tc.says, ended)
					return here, nil
				})
				short, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				request, err := http.NewRequestWithContext(short, http.MethodGet, "https://there", nil)
				if err != nil {
					t.Fatal(err)
				}
				if answer, err := transport.RoundTrip(request); err == nil {
					_ = answer.Body.Close()
					t.Error("there was an answer")
				}
				if took := <-ended; took > tc.within {
					t.Errorf("the connection was open for %s, want %s at most", took, tc.within)
				}
			})
		})
	}
}

// stall says something once it is talked to and nothing more, and tells how long the connection was open.
func stall(connection net.Conn, says string, ended chan<- time.Duration) {
	began := time.Now()
	if _, err := connection.Read(make([]byte, 1)); err == nil {
		go func() { _, _ = io.WriteString(connection, says) }()
	}
	_, _ = io.Copy(io.Discard, connection)
	_ = connection.Close()
	ended <- time.Since(began)
}

// What comes after the handshake has no end but those of requests.
func TestConnectionsThatAreEstablishedHaveNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		connection, err := bounded(func(context.Context, string, string) (net.Conn, error) { return here, nil })(
			t.Context(), "tcp", "there")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = there.Read(make([]byte, 8))
			<-time.After(time.Hour)
			_, _ = there.Write([]byte("late"))
		}()
		if _, err := connection.Write([]byte("\x16hello")); err != nil {
			t.Fatal(err)
		}
		if _, err := connection.Read(make([]byte, 8)); err != nil {
			t.Errorf("after an hour: %v", err)
		}
	})
}

// However many requests hang, another one connects: a server that speaks HTTP/1.1 has a connection for each.
func TestRequestsThatHangTakeNoConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remotes := &remotes{dialer: dial.New(nil)}
		transport, err := remotes.transport(kubeconfig.Access{Server: "https://there"})
		if err != nil {
			t.Fatal(err)
		}
		var connected atomic.Int64
		transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			connected.Add(1)
			here, there := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, there) }()
			return here, nil
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		const requests = remoteInFlight + 1 // and a call
		var all sync.WaitGroup
		for range requests {
			request, err := http.NewRequestWithContext(short, http.MethodGet, "http://there", nil)
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				if answer, err := transport.RoundTrip(request); err == nil {
					_ = answer.Body.Close()
					t.Error("there was an answer")
				}
			})
		}
		all.Wait()
		if got := connected.Load(); got != requests {
			t.Errorf("%d connections, want one for each of %d requests", got, requests)
		}
	})
}
