package release_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

// I3: an object is in an inventory before it exists, and a stage's objects are written before the next one is recorded.
func TestWritesAhead(t *testing.T) {
	w := newWorld(t)
	run, book := w.begin(t,
		stage{name: "one", objects: []string{plain("a"), plain("b")}},
		stage{name: "two", objects: []string{plain("c")}},
	)
	if got := w.advance(t, run, book); got != "Done" {
		t.Errorf("got %q", got)
	}
	want := []string{
		"finalizer", "record one: a? b?", "apply a", "apply b", "record one: a b",
		"finalizer", "record two: c?", "apply c", "record two: c",
	}
	if diff := cmp.Diff(want, w.transcript()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(w.live(t), w.stored(t)); diff != "" {
		t.Errorf("inventories (-live +stored):\n%s", diff)
	}

	// Again, as another process: nothing is left to do.
	again, book := w.begin(t,
		stage{name: "one", objects: []string{plain("a"), plain("b")}},
		stage{name: "two", objects: []string{plain("c")}},
	)
	if got := w.advance(t, again, book); got != "Done" {
		t.Errorf("again: got %q", got)
	}
	if got := w.transcript(); len(got) > 0 {
		t.Errorf("again, it writes %q", got)
	}
}

// I3: what cannot be recorded is not written. What was written and cannot be recorded as such is not lost: the next process
// finds it.
func TestWritesNothingWithoutRecord(t *testing.T) {
	stages := []stage{{name: "one", objects: []string{plain("a")}}, {name: "two", objects: []string{plain("b")}}}
	cases := map[string]struct {
		// fails is how many writes succeed before one that does not.
		fails int
		want  []string
	}{
		"the finalizer cannot be set":     {fails: 0},
		"the inventory cannot be written": {fails: 1, want: []string{"finalizer"}},
		"nor what the API server answers": {fails: 3, want: []string{"finalizer", "record one: a?", "apply a"}},
		"that of stage two cannot be": {fails: 5,
			want: []string{"finalizer", "record one: a?", "apply a", "record one: a", "finalizer"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			run, book := w.begin(t, stages...)
			w.fails = tc.fails
			if _, err := run.Advance(t.Context(), book); !errors.Is(err, errFailed) {
				t.Fatalf("got %v, want that the write failed", err)
			}
			if diff := cmp.Diff(tc.want, w.transcript()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			run, book = w.begin(t, stages...)
			if got := w.advance(t, run, book); got != "Done" {
				t.Errorf("then got %q", got)
			}
			if diff := cmp.Diff(w.live(t), w.stored(t)); diff != "" {
				t.Errorf("inventories (-live +stored):\n%s", diff)
			}
		})
	}
}

// I5, I6: wherever a process dies, the next one goes on: nothing is lost, nothing is made twice, and no stage begins early.
func TestGoesOnAfterACrash(t *testing.T) {
	stages := []stage{
		{name: "one", objects: []string{plain("a"), plain("b")}},
		{name: "two", objects: []string{plain("c")}},
	}
	// What the second process writes, by what the first one came to: it applies again only what it cannot know to be applied.
	const records = "record one: a b"
	one, two := []string{"apply a", "apply b", records}, []string{"finalizer", "record two: c?", "apply c", "record two: c"}
	wrote := [][]string{
		{},
		{"finalizer"},
		{"finalizer", "record one: a? b?"},
		{"finalizer", "record one: a? b?", "apply a"},
		{"finalizer", "record one: a? b?", "apply a", "apply b"},
		{"finalizer", "record one: a? b?", "apply a", "apply b", records},
		{"finalizer", "record one: a? b?", "apply a", "apply b", records, "finalizer"},
		{"finalizer", "record one: a? b?", "apply a", "apply b", records, "finalizer", "record two: c?"},
		{"finalizer", "record one: a? b?", "apply a", "apply b", records, "finalizer", "record two: c?", "apply c"},
	}
	goesOn := [][]string{
		slices.Concat([]string{"finalizer", "record one: a? b?"}, one, two),
		slices.Concat([]string{"finalizer", "record one: a? b?"}, one, two),
		slices.Concat([]string{"finalizer"}, one, two),
		slices.Concat([]string{"finalizer"}, one, two),
		slices.Concat([]string{"finalizer"}, one, two),
		two,
		two,
		{"finalizer", "apply c", "record two: c"},
		{"finalizer", "apply c", "record two: c"},
	}
	for dies, first := range wrote {
		t.Run("after "+strings.Join(append([]string{"nothing"}, first...), ", "), func(t *testing.T) {
			w := newWorld(t)
			run, book := w.begin(t, stages...)
			w.dies = dies
			if _, err := run.Advance(t.Context(), book); !errors.Is(err, errDied) {
				t.Fatalf("got %v, want that the process died", err)
			}
			if diff := cmp.Diff(first, w.transcript()); len(first) > 0 && diff != "" {
				t.Errorf("before the crash it writes (-want +got):\n%s", diff)
			}
			before, recorded := w.live(t), w.stored(t)
			for name := range before {
				if _, found := recorded[name]; !found {
					t.Errorf("%s exists and no inventory has it", name)
				}
			}

			run, book = w.begin(t, stages...)
			if got := w.advance(t, run, book); got != "Done" {
				t.Errorf("after the crash: got %q", got)
			}
			if diff := cmp.Diff(goesOn[dies], w.transcript()); diff != "" {
				t.Errorf("after the crash it writes (-want +got):\n%s", diff)
			}
			after := w.live(t)
			if diff := cmp.Diff(after, w.stored(t)); diff != "" {
				t.Errorf("inventories (-live +stored):\n%s", diff)
			}
			for name, uid := range before {
				if after[name] != uid {
					t.Errorf("%s was made a second time", name)
				}
			}
		})
	}
}

// I5: a stage gets no write while an object of the one before is not healthy, whether it is written now or was before.
func TestStagesWaitForTheOnesBefore(t *testing.T) {
	one := stage{name: "one", waits: true, objects: []string{plain("a")}}
	two := stage{name: "two", objects: []string{plain("b")}}
	cases := map[string]struct {
		// before is what has been released, healthy, before the release that is begun.
		before, stages []stage
		// happens is what others do when that was released.
		happens func(t *testing.T, w *world)
		// want is how far the first pass comes, and wrote what it writes.
		want  string
		wrote []string
		// then is what others do next, and after how far the next pass comes.
		then  func(t *testing.T, w *world)
		after string
	}{
		"it is new": {
			stages: []stage{one, two},
			want:   "Wait: one: ConfigMap a: current of readyChecks.exprs does not hold",
			wrote:  []string{"finalizer", "record one: a?", "apply a", "record one: a"},
			then:   func(t *testing.T, w *world) { w.label(t, "a", "healthy") },
			after:  "Done",
		},
		"it fails": {
			stages: []stage{one, two},
			want:   "Wait: one: ConfigMap a: current of readyChecks.exprs does not hold",
			wrote:  []string{"finalizer", "record one: a?", "apply a", "record one: a"},
			then:   func(t *testing.T, w *world) { w.label(t, "a", "broken") },
			after:  "Fail: one: ConfigMap a: failed of readyChecks.exprs holds",
		},
		"it does not change, and is not healthy any more": {
			before:  []stage{{name: "one", objects: []string{plain("a")}}},
			stages:  []stage{one, two},
			happens: func(t *testing.T, w *world) { w.label(t, "a", "broken") },
			want:    "Fail: one: ConfigMap a: failed of readyChecks.exprs holds",
			then: func(t *testing.T, w *world) {
				w.patch(t, "a", `{"metadata": {"labels": {"broken": null, "healthy": ""}}}`)
			},
			after: "Done",
		},
		"what it waits for is not its own": {
			stages: []stage{{name: "one", objects: []string{plain("a")}, checks: []string{"theirs"}}, two},
			want:   "Wait: one: ConfigMap theirs: of readyChecks does not exist yet",
			wrote:  []string{"finalizer", "record one: a?", "apply a", "record one: a"},
			then: func(t *testing.T, w *world) {
				w.Apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: theirs, namespace: "+w.namespace+"}}")
			},
			after: "Done",
		},
		"it does not want to be waited for": {
			stages: []stage{{name: "one", waits: true, disableWait: true, objects: []string{plain("a")}}, two},
			want:   "Done",
			wrote: []string{"finalizer", "record one: a?", "apply a", "record one: a",
				"finalizer", "record two: b?", "apply b", "record two: b"},
			then:  func(*testing.T, *world) {},
			after: "Done",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if tc.before != nil {
				w.released(t, tc.before...)
				tc.happens(t, w)
			}
			run, book := w.begin(t, tc.stages...)
			if got := w.advance(t, run, book); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if diff := cmp.Diff(tc.wrote, w.transcript()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			tc.then(t, w)
			if got := w.advance(t, run, book); got != tc.after {
				t.Errorf("then got  %s\nwant      %s", got, tc.after)
			}
			_, two := w.live(t)["b"]
			if done := tc.after == "Done"; two != done {
				t.Errorf("stage two is written: %t, want %t", two, done)
			}
		})
	}
}

// Gates hold up the later waves of their own stage, even one whose health nobody waits for.
func TestWavesWaitForGates(t *testing.T) {
	for name, disableWait := range map[string]bool{"a stage that waits": false, "one that does not": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			stages := []stage{
				{name: "one", waits: true, disableWait: disableWait, objects: []string{plain("z"), w.after("a", "z")}},
				{name: "two", objects: []string{plain("b")}},
			}
			run, book := w.begin(t, stages...)
			progress, err := run.Advance(t.Context(), book)
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"finalizer", "record one: a? z?", "apply z", "record one: a? z"}
			if diff := cmp.Diff(want, w.transcript()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			if progress.Step.String() != "Wait" || progress.Name != "one" {
				t.Errorf("got %q, want to wait in stage one", w.said(progress))
			}

			w.label(t, "z", "healthy")
			if _, err := run.Advance(t.Context(), book); err != nil {
				t.Fatal(err)
			}
			got := w.transcript()
			if want := []string{"finalizer", "apply a", "record one: a z"}; len(got) < 3 || !slices.Equal(got[:3], want) {
				t.Errorf("when the gate is healthy it writes %q, want %q first", got, want)
			}
		})
	}
}

// I6: what was deleted while the run waits is found again by a new run: nothing is concluded from what is not there.
func TestStartsAgainWhenAnObjectIsGone(t *testing.T) {
	w := newWorld(t)
	one := stage{name: "one", waits: true, objects: []string{plain("a")}}
	run, book := w.begin(t, one)
	w.advance(t, run, book)
	if err := w.Client(t).Delete(t.Context(), w.ref("a")); err != nil {
		t.Fatal(err)
	}
	_, err := run.Advance(t.Context(), book)
	if failed := failure.From(err); failed == nil || failed.Reason != v1.ReasonProgressing || failed.Stage != "one" {
		t.Fatalf("got %v, want that the pass starts again", err)
	}
	w.transcript()
	run, book = w.begin(t, one)
	w.advance(t, run, book)
	if diff := cmp.Diff([]string{"finalizer", "record one: a?", "apply a", "record one: a"}, w.transcript()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// A stage that is not healthy within its timeout is held, and goes on by itself.
func TestHoldsAfterTheTimeout(t *testing.T) {
	w := newWorld(t)
	run, book := w.begin(t, stage{name: "one", waits: true, objects: []string{plain("a")}})
	w.advance(t, run, book)
	w.clock.SetTime(w.clock.Now().Add(timeout + 1))
	if got, want := w.advance(t, run, book), "Hold: one: ConfigMap a: current of readyChecks.exprs does not hold"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	w.label(t, "a", "healthy")
	if got := w.advance(t, run, book); got != "Done" {
		t.Errorf("got %q", got)
	}
}

// A stage that was left healthy has to be so still before the release goes on, or is done.
func TestLooksBackBeforeItIsDone(t *testing.T) {
	w := newWorld(t)
	run, book := w.begin(t,
		stage{name: "one", waits: true, objects: []string{plain("a")}},
		stage{name: "two", waits: true, objects: []string{plain("b")}},
	)
	w.advance(t, run, book)
	w.label(t, "a", "healthy")
	if got, want := w.advance(t, run, book), "Wait: two: ConfigMap b: current of readyChecks.exprs does not hold"; got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	w.label(t, "a", "broken")
	w.label(t, "b", "healthy")
	if got, want := w.advance(t, run, book), "Fail: one: ConfigMap a: failed of readyChecks.exprs holds"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
