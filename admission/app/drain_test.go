package app

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

func newDrain() *drain {
	return &drain{delay: 10 * time.Second, clock: clock.RealClock{}, logger: logr.Discard()}
}

// P-32: readiness goes first, what serves goes after the delay.
func TestDrainServesOnForTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDrain()
		ctx, terminate := context.WithCancel(t.Context())
		ended := make(chan time.Time, 1)
		go func() {
			_ = d.Run(ctx, func(serving context.Context) error {
				<-serving.Done()
				return nil
			})
			ended <- time.Now()
		}()
		synctest.Wait()
		if err := d.Ready(nil); err != nil {
			t.Errorf("not ready before the signal: %v", err)
		}
		begin := time.Now()
		terminate()
		synctest.Wait()
		if err := d.Ready(nil); !errors.Is(err, errDraining) {
			t.Errorf("readiness after the signal: %v, want %v", err, errDraining)
		}
		if took := (<-ended).Sub(begin); took != d.delay {
			t.Errorf("served on for %s, want %s", took, d.delay)
		}
	})
}

func TestDrainEndsAtOnceWhenServingFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		begin := time.Now()
		err := newDrain().Run(t.Context(), func(context.Context) error { return broken })
		if !errors.Is(err, broken) || time.Since(begin) != 0 {
			t.Errorf("got %v after %s, want %v at once", err, time.Since(begin), broken)
		}
	})
}
