package chart_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

// rollout replaces the admission program as a rolling update does. Its address, which is the Service's, leads new
// connections to the newest program; those that the API server has stay with the program that they were opened to.
type rollout struct {
	port    int // of the first program, which a rollback renders again
	newest  atomic.Int64
	running *process.Process
}

// rollsOut has the values of the release render a port of the program that is not the Service's, on which it listens itself.
func (r *release) rollsOut(t *testing.T, service int) *rollout {
	t.Helper()
	o := &rollout{port: process.FreePort(t)}
	r.values = append(r.values, valuesFile(t, fmt.Sprintf("admission: {flags: {webhook-port: %d}}", o.port)))
	process.Forward(t, service, func() int { return int(o.newest.Load()) })
	return o
}

// replace starts the program as the release now renders it, at port, and ends the one before once it is ready.
func (o *rollout) replace(t *testing.T, r *release, port int) {
	t.Helper()
	old := o.running
	o.running = r.start(t, "admission")
	o.newest.Store(int64(port))
	if old == nil {
		return
	}
	if err := old.Stop(); err != nil {
		t.Error(err)
	}
	if state := old.State(); state == nil || state.ExitCode() != 0 {
		t.Errorf("the program that was replaced ended with %v", state)
	}
}

// more waits for writes beyond those that there are.
func more(t *testing.T, written *atomic.Int64, writes int64) {
	t.Helper()
	want := written.Load() + writes
	cluster.Eventually(t, func(context.Context) error {
		if got := written.Load(); got < want {
			return fmt.Errorf("%d writes, want %d", got, want)
		}
		return nil
	})
}
