package store

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/go-logr/logr"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/policies"
)

// nothing is a cache without policies.
type nothing struct{ cache.Cache }

func (nothing) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// Who writes parameters all the time does not have everything judged again all the time: five times a second for a minute make
// few other Sets, the first one at once.
func TestParamsThatChangeAllTheTime(t *testing.T) {
	builtIn, err := policies.Compile(t.Context(), nil, policies.Options{BuiltIn: true})
	if err != nil {
		t.Fatal(err)
	}
	at := testingclock.NewFakeClock(time.Now())
	s := New(Options{BuiltIn: builtIn, Cache: nothing{}, Clock: at, Logger: logr.Discard()})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.run(ctx) }()
	if err := s.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := map[*policies.Set]bool{s.Set(): true}
	for i := range 300 {
		signal(s.read)
		for !at.HasWaiters() {
			runtime.Gosched()
		}
		at.Step(settle)
		for i == 0 && len(seen) < 2 { // at once
			seen[s.Set()] = true
			runtime.Gosched()
		}
		seen[s.Set()] = true
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if len(seen) > 8 {
		t.Errorf("there were %d other sets in a minute", len(seen)-1)
	}
}
