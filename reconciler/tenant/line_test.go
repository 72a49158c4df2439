package tenant

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

// lineWorld has lines of clusters that answer as the test says, in the time of the test.
type lineWorld struct {
	*lines

	mu    sync.Mutex
	woken map[string]int
	calls int
	// takes and fails are what a call comes to; it ends before, with its context.
	takes time.Duration
	fails error
}

func newLineWorld() *lineWorld {
	w := &lineWorld{woken: map[string]int{}}
	w.lines = &lines{clock: clock.RealClock{}, turns: newTurns(callsInFlight), wake: w.hear}
	return w
}

func (w *lineWorld) hear(_ context.Context, stageSet types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.woken[stageSet.Name]++
}

func (w *lineWorld) line(namespace string) *line { return &line{lines: w.lines, namespace: namespace} }

// answer is what a call is answered.
func (w *lineWorld) answer(ctx context.Context) error {
	w.mu.Lock()
	w.calls++
	takes, fails := w.takes, w.fails
	w.mu.Unlock()
	return waitFor(ctx, takes, fails)
}

// waitFor ends with the error, or before with the context.
func waitFor(ctx context.Context, takes time.Duration, err error) error {
	select {
	case <-time.After(takes):
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reached is what a pass learns of a line, and what that costs.
type reached struct {
	Took            time.Duration
	Reason          string
	Postponed, Slow bool
}

func (w *lineWorld) reach(t *testing.T, line *line, pass *Pass) reached {
	t.Helper()
	began := time.Now()
	err := line.reach(pass.Context(t.Context()), w.answer)
	got := reached{Took: time.Since(began), Postponed: pass.Postponed(), Slow: pass.Slow()}
	if err != nil {
		got.Reason = failure.From(unreachable("https://there", err)).Reason
	}
	return got
}

// expect compares what a new pass over a StageSet of the name learns.
func (w *lineWorld) expect(t *testing.T, when string, line *line, name string, want reached) {
	t.Helper()
	pass := &Pass{StageSet: types.NamespacedName{Namespace: line.namespace, Name: name}}
	if diff := cmp.Diff(want, w.reach(t, line, pass)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// expectCalls compares how many calls were made so far, and who was woken how often.
func (w *lineWorld) expectCalls(t *testing.T, when string, calls int, woken map[string]int) {
	t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls != calls {
		t.Errorf("%s: %d calls, want %d", when, w.calls, calls)
	}
	if diff := cmp.Diff(woken, w.woken); diff != "" {
		t.Errorf("%s: woken (-want +got):\n%s", when, diff)
	}
}

const never = 24 * time.Hour

// T-25: where nobody answers is found out once, beside the passes. Each waits a moment and is told when it is over; from
// then on all know at once, and when the cluster is back, they are told too.
func TestLineToNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLineWorld()
		line := w.line("a")
		w.takes = never
		postponed := reached{Took: callMoment, Reason: v1.ReasonProgressing, Postponed: true}
		known := reached{Reason: v1.ReasonTargetUnreachable}
		w.expect(t, "the first", line, "first", postponed)
		w.expect(t, "the second", line, "second", postponed)
		<-time.After(callTimeout)
		w.expectCalls(t, "after both", 1, map[string]int{"first": 1, "second": 1})
		for range 20 {
			w.expect(t, "when it is known", line, "first", known)
		}
		w.expectCalls(t, "when it is known", 1, map[string]int{"first": 1, "second": 1})

		<-time.After(closedFor)
		for range 20 {
			w.expect(t, "while somebody calls again", line, "first", known)
		}
		<-time.After(callTimeout)
		w.expectCalls(t, "nothing new", 2, map[string]int{"first": 1, "second": 1})

		<-time.After(closedFor)
		w.takes = 0
		w.expect(t, "just before it is known to be back", line, "second", known)
		w.expectCalls(t, "back", 3, map[string]int{"first": 1, "second": 2})
		w.expect(t, "back", line, "first", reached{})
	})
}

// Who answers is not called again for a while; nor is who refuses at once: a pass finds out by itself what is wrong.
func TestLineThatIsOpen(t *testing.T) {
	for name, err := range map[string]error{"it answers": nil, "it refuses": errors.New("connection refused")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newLineWorld()
				line := w.line("a")
				w.fails = err
				for calls := range 3 {
					for range 5 {
						w.expect(t, "open", line, "app", reached{})
					}
					w.expectCalls(t, "open", calls+1, map[string]int{})
					<-time.After(openFor)
				}
			})
		})
	}
}

// A cluster that is slow is waited for by patient passes alone, until it has not been slow for a while.
func TestLineToASlowCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLineWorld()
		line := w.line("a")
		w.takes = patience
		w.expect(t, "the first", line, "app", reached{Took: callMoment, Reason: v1.ReasonProgressing, Postponed: true})
		<-time.After(patience)
		w.expectCalls(t, "answered", 1, map[string]int{"app": 1})
		w.expect(t, "in a hurry", line, "app", reached{Reason: v1.ReasonProgressing, Postponed: true, Slow: true})
		patient := &Pass{Patient: true}
		if diff := cmp.Diff(reached{Slow: true}, w.reach(t, line, patient)); diff != "" {
			t.Errorf("a patient pass (-want +got):\n%s", diff)
		}
		w.takes = 0
		<-time.After(slowFor)
		w.expect(t, "not slow any more", line, "app", reached{})
	})
}

// carried is what becomes of a request, and of its pass.
type carried struct {
	Took            time.Duration
	Error           bool
	Postponed, Slow bool
}

// T-25: a request that is not answered costs a pass in a hurry little, and a patient one a single wait. What is learned of
// the cluster holds for the passes that follow.
func TestRequestsThatAreNotAnswered(t *testing.T) {
	const timeout = time.Minute
	patient, never := 2*patience, never
	for name, tc := range map[string]struct {
		patient bool
		takes   time.Duration
		want    []carried
		next    reached
	}{
		"at once": {false, 0, []carried{{}, {}}, reached{}},
		"in a hurry": {false, never, []carried{{patience, true, true, false}, {0, true, true, false}},
			reached{Reason: v1.ReasonProgressing, Postponed: true, Slow: true}},
		"slowly, in a hurry": {false, patient, []carried{{patience, true, true, false}, {0, true, true, false}},
			reached{Reason: v1.ReasonProgressing, Postponed: true, Slow: true}},
		"slowly": {true, patient, []carried{{patient, false, false, true}, {patient, false, false, true}},
			reached{Reason: v1.ReasonProgressing, Postponed: true, Slow: true}},
		"never": {true, never, []carried{{timeout, true, false, true}, {0, true, false, true}},
			reached{Reason: v1.ReasonTargetUnreachable}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newLineWorld()
				line := w.line("a")
				w.expect(t, "before", line, "app", reached{})
				pass := &Pass{Patient: tc.patient}
				var got []carried
				for range tc.want {
					began := time.Now()
					_, err := line.carry(pass.Context(t.Context()), timeout, w.answer, func(ctx context.Context) ([]byte, error) {
						return nil, waitFor(ctx, tc.takes, nil)
					})
					got = append(got, carried{time.Since(began), err != nil, pass.Postponed(), pass.Slow()})
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
				synctest.Wait()
				w.expect(t, "the next pass", line, "app", tc.next)
			})
		})
	}
}

// T-25: a cluster that does not answer any more, a moment after it has, is called again before anybody waits for it
// patiently.
func TestClusterThatDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLineWorld()
		line := w.line("a")
		w.expect(t, "before", line, "app", reached{})
		w.takes = never
		pass := &Pass{StageSet: types.NamespacedName{Namespace: "a", Name: "app"}}
		_, err := line.carry(pass.Context(t.Context()), time.Minute, w.answer, func(ctx context.Context) ([]byte, error) {
			return nil, waitFor(ctx, never, nil)
		})
		if err == nil || !pass.Postponed() || pass.Slow() {
			t.Errorf("postponed: %t, slow: %t, %v", pass.Postponed(), pass.Slow(), err)
		}
		<-time.After(callTimeout)
		w.expectCalls(t, "dead", 2, map[string]int{"app": 1})
		w.expect(t, "dead", line, "app", reached{Reason: v1.ReasonTargetUnreachable})
	})
}

// Whose pass ends has learned nothing of the cluster.
func TestRequestsThatAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLineWorld()
		line := w.line("a")
		w.expect(t, "before", line, "app", reached{})
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := line.carry((&Pass{}).Context(short), time.Minute, w.answer, func(ctx context.Context) ([]byte, error) {
			return nil, waitFor(ctx, never, nil)
		})
		if err == nil {
			t.Error("it was answered")
		}
		w.expect(t, "after", line, "app", reached{})
	})
}

// T-25: however many dead clusters a namespace has, the call of another one is made at once, and its own are made in turn.
func TestCallsToManyDeadClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLineWorld()
		w.takes = never
		const dead = callsOfNamespace - 1
		var passes sync.WaitGroup
		for i := range dead {
			line := w.line("a")
			passes.Go(func() {
				w.expect(t, "dead", line, fmt.Sprint(i), reached{Took: callMoment, Reason: v1.ReasonProgressing, Postponed: true})
			})
		}
		passes.Wait()
		w.expectCalls(t, "at once", callsInFlight/namespaceShare, map[string]int{})
		w.mu.Lock()
		w.takes = 0
		w.mu.Unlock()
		w.expect(t, "another namespace", w.line("b"), "app", reached{})
		healthy := w.line("a")
		w.expect(t, "the same", healthy, "app", reached{Took: callMoment, Reason: v1.ReasonProgressing, Postponed: true})
		<-time.After(callTimeout)
		w.expect(t, "the same, after a round", healthy, "app", reached{})
	})
}

// However many clusters a namespace makes up, what waits for its turn has a bound, and another namespace's call is made.
func TestCallsOfANamespaceAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLineWorld()
		w.takes = never
		var passes sync.WaitGroup
		for i := range 3 * callsOfNamespace {
			line := w.line("a")
			passes.Go(func() {
				pass := &Pass{StageSet: types.NamespacedName{Namespace: "a", Name: fmt.Sprint(i)}}
				got := w.reach(t, line, pass)
				got.Took = 0
				if diff := cmp.Diff(reached{Reason: v1.ReasonProgressing, Postponed: true}, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
		passes.Wait()
		if got := w.begun.of["a"]; got != callsOfNamespace {
			t.Errorf("%d calls are made or wait, want %d", got, callsOfNamespace)
		}
		w.mu.Lock()
		w.takes = 0
		w.mu.Unlock()
		w.expect(t, "another namespace", w.line("b"), "app", reached{})
		<-time.After(callTimeout)
		synctest.Wait()
		if got := len(w.begun.of); got != 0 {
			t.Errorf("%d namespaces have calls when all are over", got)
		}
	})
}

// A call whose turn does not come ends, says nothing of the cluster, and wakes who waits.
func TestCallsWhoseTurnDoesNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLineWorld()
		for range callsInFlight / namespaceShare {
			done, err := w.turns.take(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			defer done()
		}
		line := w.line("a")
		postponed := reached{Took: callMoment, Reason: v1.ReasonProgressing, Postponed: true}
		w.expect(t, "the first", line, "app", postponed)
		<-time.After(turnTimeout)
		w.expectCalls(t, "after its time", 0, map[string]int{"app": 1})
		w.expect(t, "the next", line, "app", postponed)
		<-time.After(turnTimeout)
	})
}

// Whom a call keeps waiting is woken also if it ends as another pass already knows.
func TestWhoLeftIsWokenWhateverIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLineWorld()
		line := w.line("a")
		w.takes = never
		w.expect(t, "before", line, "app", reached{Took: callMoment, Reason: v1.ReasonProgressing, Postponed: true})
		line.mu.Lock()
		line.close(errors.New("a patient pass has waited in vain"))
		line.mu.Unlock()
		known := reached{Reason: v1.ReasonTargetUnreachable}
		w.expect(t, "who knows", line, "other", known)
		w.expect(t, "who has left and knows now", line, "app", known)
		<-time.After(callTimeout)
		w.expectCalls(t, "over", 1, map[string]int{"app": 1})
	})
}

// A patient pass has a place among few already: it waits for the call, and is not made again for it.
func TestPatientPassesWaitForTheCall(t *testing.T) {
	for name, tc := range map[string]struct {
		takes time.Duration
		want  reached
	}{
		"slow": {2 * patience, reached{Took: 2 * patience, Slow: true}},
		"dead": {never, reached{Took: callTimeout, Reason: v1.ReasonTargetUnreachable}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newLineWorld()
				w.takes = tc.takes
				if diff := cmp.Diff(tc.want, w.reach(t, w.line("a"), &Pass{Patient: true})); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}
