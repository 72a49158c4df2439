package tenant

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// T-25: after a failure one at a time finds out whether it still fails, and nobody waits for that one.
func TestGate(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	failed := errors.New("nobody is there")
	answer := make(chan error, 1)
	began := make(chan struct{}, 1)
	g := &gate{clock: clock, connect: func(context.Context, string, string) (net.Conn, error) {
		began <- struct{}{}
		return nil, <-answer
	}}
	try := func() error {
		_, err := g.dial(t.Context(), "tcp", "there")
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

	clock.SetTime(clock.Now().Add(gatePause))
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
