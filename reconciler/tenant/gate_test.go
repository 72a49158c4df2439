package tenant

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/stageset/stageset/reconciler/dial"
	"github.com/stageset/stageset/reconciler/kubeconfig"
)

// T-25: after a failure one at a time finds out whether it still fails, and nobody waits for that one.
func TestGate(t *testing.T) {
	passive := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	failed := errors.New("nobody is there")
	answer := make(chan error, 1)
	began := make(chan struct{}, 1)
	g := &gate{clock: passive, connect: func(context.Context, string, string) (net.Conn, error) {
		began <- struct{}{}
		return talking{}, <-answer
	}}
	try := func() error {
		connection, err := g.dial(t.Context(), "tcp", "there")
		if err == nil {
			_, err = connection.Read(make([]byte, 1))
		}
		return err
	}
	tried := func() bool {
		select {
		case <-began:
			return true
		default:
			return false
		}
	}

	answer <- failed
	if err := try(); !errors.Is(err, failed) || !tried() {
		t.Fatalf("the first attempt: %v", err)
	}
	if err := try(); !errors.Is(err, failed) || tried() {
		t.Errorf("within the pause: %v, want what is known and no attempt", err)
	}

	passive.SetTime(passive.Now().Add(gatePause))
	done := make(chan error)
	go func() { done <- try() }()
	<-began
	if err := try(); !errors.Is(err, failed) || tried() {
		t.Errorf("while one tries: %v, want what is known and no second attempt", err)
	}

	// Whose request was given up has found out nothing.
	answer <- context.Canceled
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	answer <- nil
	if err := try(); err != nil || !tried() {
		t.Errorf("the next one: %v, want it to try", err)
	}
	answer <- nil
	if err := try(); err != nil || !tried() {
		t.Errorf("after a success: %v, want everybody to try", err)
	}
}

// talking is a connection to somebody who talks at once.
type talking struct{ net.Conn }

func (talking) Read(into []byte) (int, error)   { return len(into), nil }
func (talking) SetReadDeadline(time.Time) error { return nil }

// T-25: a server that accepts connections and says nothing is as good as gone, and a request that is given up before
// anything was heard says nothing about it.
func TestGateOfASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connects := 0
		passive := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
		g := &gate{clock: passive, connect: func(context.Context, string, string) (net.Conn, error) {
			connects++
			here, there := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, there) }()
			return here, nil
		}}
		remotes := &remotes{dialer: dial.New(nil)}
		transport, err := remotes.transport(kubeconfig.Access{Server: "https://there"}, g)
		if err != nil {
			t.Fatal(err)
		}
		ask := func(ctx context.Context) (time.Duration, error) {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://there", nil)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			_, err = transport.RoundTrip(request)
			return time.Since(began), err
		}

		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := ask(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("given up: %v", err)
		}
		synctest.Wait()
		if took, err := ask(t.Context()); took == 0 || took > connectTimeout || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("it took %s to find out: %v, want %s at most", took, err, connectTimeout)
		}
		before := connects
		if took, err := ask(t.Context()); took != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || connects != before {
			t.Errorf("within the pause it took %s and %d connections: %v, want neither", took, connects-before, err)
		}
		passive.SetTime(passive.Now().Add(gatePause))
		if took, _ := ask(t.Context()); took != connectTimeout || connects != before+1 {
			t.Errorf("after the pause it took %s and %d connections, want %s and one", took, connects-before, connectTimeout)
		}
	})
}
