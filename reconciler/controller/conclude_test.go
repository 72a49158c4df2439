package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/status"
)

func TestPause(t *testing.T) {
	stalled := failure.NewStalled(v1.ReasonAccessDenied, "denied")
	transient := failure.NewTransient(v1.ReasonTargetUnreachable, "no answer")
	waiting := failure.NewWaiting(v1.ReasonDependencyNotReady, 30*time.Second, "not ready")
	watched := failure.NewWaiting(v1.ReasonSourceNotReady, 0, "no artifact")
	cases := map[string]struct {
		interval, retryInterval time.Duration
		passes                  []*failure.Error
		running                 *failure.Error
		want                    []time.Duration
	}{
		"success waits for the interval": {passes: []*failure.Error{nil}, want: []time.Duration{10 * time.Minute}},
		"its own interval": {
			interval: time.Hour, passes: []*failure.Error{nil}, want: []time.Duration{time.Hour},
		},
		"stalled and transient back off alike": {
			passes: []*failure.Error{stalled, transient, stalled, stalled},
			want:   []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second},
		},
		"no further than retryInterval": {
			retryInterval: 3 * time.Second, passes: []*failure.Error{stalled, stalled, stalled},
			want: []time.Duration{time.Second, 2 * time.Second, 3 * time.Second},
		},
		"no further than two minutes without one": {
			passes: []*failure.Error{stalled, stalled, stalled, stalled, stalled, stalled, stalled, stalled, stalled},
			want: []time.Duration{
				time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second,
				64 * time.Second, 2 * time.Minute, 2 * time.Minute,
			},
		},
		"no further than a shorter interval": {
			interval: 30 * time.Second, passes: []*failure.Error{stalled, stalled, stalled, stalled, stalled, stalled},
			want: []time.Duration{
				time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second,
			},
		},
		"a pass without a failure begins anew": {
			passes: []*failure.Error{stalled, stalled, nil, stalled},
			want:   []time.Duration{time.Second, 2 * time.Second, 10 * time.Minute, time.Second},
		},
		"waits have their own pauses": {
			passes: []*failure.Error{stalled, waiting, watched, stalled},
			want:   []time.Duration{time.Second, 30 * time.Second, 10 * time.Minute, time.Second},
		},
		"what runs and is not healthy is looked at soon": {
			running: failure.NewStalled(v1.ReasonHealthCheckFailed, "broken"), passes: []*failure.Error{nil, watched, stalled},
			want: []time.Duration{lookPause, lookPause, time.Second},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set := &v1.StageSet{}
			if tc.interval > 0 {
				set.Spec.Interval = &metav1.Duration{Duration: tc.interval}
			}
			if tc.retryInterval > 0 {
				set.Spec.RetryInterval = &metav1.Duration{Duration: tc.retryInterval}
			}
			r := &Reconciler{Options: Options{DefaultInterval: 10 * time.Minute}}
			snap := &snapshot{set: set, effective: set, memo: &memo{}}
			var got []time.Duration
			for _, failed := range tc.passes {
				var ended outcome
				ended.Failure, ended.Running = failed, tc.running
				got = append(got, r.pause(snap, ended))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("pauses (-want +got):\n%s", diff)
			}
		})
	}
}

// recorder keeps events: "reason: note".
type recorder []string

func (r *recorder) Eventf(_, _ runtime.Object, _, reason, _, note string, args ...any) {
	*r = append(*r, reason+": "+fmt.Sprintf(note, args...))
}

// The same failure again writes nothing and tells nobody; another one does. What only has the pass start again is neither a
// failure nor worth telling.
func TestConcludeTellsOnlyWhatIsNew(t *testing.T) {
	stored := &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "shop", Generation: 1}}
	cluster := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(stored).WithStatusSubresource(stored).Build()
	var told recorder
	r := &Reconciler{Client: cluster, Events: &told, Clock: clock.RealClock{}, Options: Options{DefaultInterval: time.Minute}}
	name := client.ObjectKeyFromObject(stored)
	conclude := func(ended outcome) string {
		t.Helper()
		var set v1.StageSet
		if err := cluster.Get(t.Context(), name, &set); err != nil {
			t.Fatal(err)
		}
		snap := &snapshot{set: &set, effective: &set, memo: r.memory.of(name, set.UID), known: []string{"1"}}
		if _, err := r.conclude(t.Context(), snap, ended); err != nil {
			t.Fatal(err)
		}
		if err := cluster.Get(t.Context(), name, &set); err != nil {
			t.Fatal(err)
		}
		return set.ResourceVersion
	}
	denied := failure.NewStalled(v1.ReasonAccessDenied, "denied")
	again := failure.NewTransient(v1.ReasonProgressing, "the inventory changed: it starts again")
	first := conclude(failed(denied))
	if second := conclude(failed(fmt.Errorf("once more: %w", denied))); second != first {
		t.Error("the same failure is written again")
	}
	conclude(failed(again))
	conclude(failed(failure.NewTransient(v1.ReasonTargetUnreachable, "read tcp 10.0.0.1:1->10.0.0.2:443: reset")))
	third := conclude(failed(failure.NewTransient(v1.ReasonTargetUnreachable, "read tcp 10.0.0.1:2->10.0.0.2:443: reset")))
	fourth := conclude(failed(failure.NewTransient(v1.ReasonTargetUnreachable, "read tcp 10.0.0.1:3->10.0.0.2:443: reset")))
	if fourth != third {
		t.Error("what differs in nothing that matters is written again")
	}
	conclude(failed(failure.NewWaiting(v1.ReasonSourceNotReady, 0, "no artifact")))
	want := []string{"AccessDenied: denied", "TargetUnreachable: read tcp 10.0.0.2:443: reset"}
	if diff := cmp.Diff(want, []string(told)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// Two passes follow each other before the cache shows what the first has stored: that the second waits again is written,
// although the cache still shows that the StageSet waits.
func TestConcludeWritesWhatOnlyAStaleCacheShows(t *testing.T) {
	stored := &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "shop", Generation: 1}}
	cluster := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(stored).WithStatusSubresource(stored).Build()
	r := &Reconciler{Client: cluster, Events: &recorder{}, Clock: clock.RealClock{}, Options: Options{DefaultInterval: time.Minute}}
	name := client.ObjectKeyFromObject(stored)
	read := func() *v1.StageSet {
		t.Helper()
		var set v1.StageSet
		if err := cluster.Get(t.Context(), name, &set); err != nil {
			t.Fatal(err)
		}
		return &set
	}
	conclude := func(cached *v1.StageSet, ended status.Outcome) {
		t.Helper()
		memo := r.memory.of(name, cached.UID)
		memo.catchUp(cached)
		snap := &snapshot{set: cached, effective: cached, memo: memo, known: []string{"1"}}
		if _, err := r.conclude(t.Context(), snap, outcome{Outcome: ended}); err != nil {
			t.Fatal(err)
		}
	}
	waits := status.Outcome{Kind: status.Progressing, Message: "waits"}
	conclude(read(), waits)
	stale := read()
	conclude(read(), status.Outcome{Kind: status.Succeeded})
	conclude(stale, waits)
	ready := meta.FindStatusCondition(read().Status.Conditions, v1.ConditionReady)
	if ready == nil || ready.Reason != v1.ReasonProgressing {
		t.Errorf("Ready is %v, want %s", ready, v1.ReasonProgressing)
	}
}

// An event whose note is longer than the API server takes is lost: 1024 bytes, not characters.
func TestNotesFit(t *testing.T) {
	const limit = 1024
	for _, letter := range []string{"x", "ü", "世"} {
		got := note(strings.Repeat(letter, limit))
		if len(got) > limit || len(got) < limit-4 || !utf8.ValidString(got) {
			t.Errorf("%d bytes of %d: %q", len(got), limit, got)
		}
	}
}

// What a pass has done is told even if it is interrupted, without values of Secrets, and once.
func TestConcludeTellsWhatThePassNoted(t *testing.T) {
	stored := &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "shop", Generation: 1}}
	var events recorder
	r := &Reconciler{Events: &events, Clock: clock.RealClock{}}
	snap := &snapshot{set: stored, effective: stored, memo: &memo{}}
	snap.without = append(snap.without, func(text string) string { return strings.ReplaceAll(text, "canary", "[…]") })
	snap.tell(told{kind: "Normal", reason: v1.EventDriftCorrected, action: "Correct", note: "corrected canary"})
	snap.tell(told{reason: v1.EventOrphaned, note: "a line of the log alone"})
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		if _, err := r.conclude(interrupted, snap, outcome{}); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"DriftCorrected: corrected […]"}, []string(events)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// That what runs is not healthy is worth an event when it has failed, whatever holds a newer release.
func TestWhatRunsAndFailsIsTold(t *testing.T) {
	before := &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
	before.Status.Conditions = []metav1.Condition{{Type: v1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1.ReasonSucceeded}}
	dependency := failure.NewWaiting(v1.ReasonDependencyNotReady, 0, "base is not Ready")
	failed := failure.NewStalled(v1.ReasonHealthCheckFailed, "web failed")
	waits := failure.NewWaiting(v1.ReasonProgressing, 0, "web: Available: 0/1")
	cases := map[string]struct {
		ended status.Outcome
		want  []string // type and reason
	}{
		"held":                       {ended: status.Outcome{Kind: status.Failed, Failure: dependency}},
		"held, and in progress":      {ended: status.Outcome{Kind: status.Failed, Failure: dependency, Running: waits}},
		"held, and failed":           {ended: status.Outcome{Kind: status.Failed, Failure: dependency, Running: failed}, want: []string{"Warning HealthCheckFailed"}},
		"suspended":                  {ended: status.Outcome{Kind: status.Suspended}, want: []string{"Normal Suspended"}},
		"suspended, and in progress": {ended: status.Outcome{Kind: status.Suspended, Running: waits}, want: []string{"Normal Progressing"}},
		"suspended, and failed":      {ended: status.Outcome{Kind: status.Suspended, Running: failed}, want: []string{"Warning HealthCheckFailed"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			after := before.DeepCopy()
			after.Status = status.Next(before, tc.ended, time.Now())
			snap := &snapshot{set: after}
			snap.announce(before, tc.ended)
			var got []string
			for _, what := range snap.told {
				got = append(got, what.kind+" "+what.reason)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}
