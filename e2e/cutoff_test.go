package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/stageset/stageset/e2e/cluster"
)

// A replica that leads and gets no answer any more ends by itself, while its lease still keeps everybody else from leading, as
// docs/operations.md says; then another one goes on.
func TestWhoLeadsAndGetsNoAnswerEnds(t *testing.T) {
	s := setup(t)
	s.stopReconciler(t)
	n := s.tenant(t)
	key := hashKey(t)
	first := s.replica(t, key)
	changing := n.changing(t, 2)
	changing.until(t, "the first replica applies", func() bool { return first.applied() >= 20 })
	second := s.replica(t, key)
	first.journal.away.Store(true)
	select {
	case <-first.process.Done():
	case <-time.After(2 * cluster.Timeout):
		t.Fatal("the replica without answers goes on")
	}
	ended := time.Now()
	if code := first.process.State().ExitCode(); code <= 0 {
		t.Errorf("it ended with %d, as if it had been asked to", code)
	}
	if output := first.process.Output(); !strings.Contains(output, "leader election lost") {
		t.Errorf("it does not say why it ended:\n%s", output)
	}
	changing.until(t, "the second replica applies", func() bool { return second.applied() >= 20 })
	lead := second.journal.find(func(w write) bool { return w.stored && w.lease() })[0]
	if !ended.Before(lead.begin) {
		t.Errorf("it ended at %s, when another one led already, since %s", ended, lead.begin)
	}
	changing.ended(t)
}
