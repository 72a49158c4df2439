package rollout

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stageset/stageset/reconciler/health"
	"github.com/stageset/stageset/reconciler/inventory"
)

var update = flag.Bool("update", false, "rewrite the golden transcripts")

// world is a cluster that a release is simulated in: what each stage's objects do after they are written.
type world struct {
	stages []simulated
	// ends is when the simulation stops looking.
	ends time.Duration
}

type simulated struct {
	name    string
	changed int
	timeout time.Duration
	// healthyAfter and failsAfter count from the stage's write; zero of failsAfter is never.
	healthyAfter, failsAfter time.Duration
	// crdAfter, if not zero, holds half of the objects back until a CRD is established that long after the first half.
	crdAfter time.Duration
	// broken objects are unhealthy before the run and mended by its write.
	broken bool
	// drifted objects are corrected until the run has written something else.
	drifted int
	// driftsAfter is when they drift; zero is before the run.
	driftsAfter time.Duration
}

// TestTranscripts simulates whole releases and compares every decision with a golden file.
func TestTranscripts(t *testing.T) {
	cases := map[string]world{
		"two stages, each healthy at once": {stages: []simulated{
			{name: "one", changed: 3}, {name: "two", changed: 2},
		}},
		"second stage waits for the first": {stages: []simulated{
			{name: "one", changed: 1, healthyAfter: 12 * time.Second}, {name: "two", changed: 1},
		}},
		"nothing changed": {stages: []simulated{{name: "one"}, {name: "two"}}},
		// T-46: a stage that is unchanged but unhealthy holds back a later one that changed.
		"unchanged but unhealthy stage holds the next": {ends: 20 * time.Second, stages: []simulated{
			{name: "one", healthyAfter: time.Hour}, {name: "two", changed: 1},
		}},
		// T-38: what says that it failed ends the wait at once.
		"failed object ends the wait": {stages: []simulated{
			{name: "one", changed: 1, failsAfter: 3 * time.Second, healthyAfter: time.Hour}, {name: "two", changed: 1},
		}},
		// T-47: a timeout is no failure; the stage finishes by itself.
		"timeout holds and goes on by itself": {stages: []simulated{
			{name: "one", changed: 1, timeout: 30 * time.Second, healthyAfter: 50 * time.Second}, {name: "two", changed: 1},
		}},
		// T-46: what was released before is set right, whatever an earlier stage is waited for.
		"drift is corrected while an earlier stage is not healthy": {ends: 3 * time.Second, stages: []simulated{
			{name: "one", healthyAfter: time.Hour}, {name: "two", changed: 1, drifted: 1}, {name: "three", drifted: 2},
		}},
		// I5: once the run has written, a stage that it has not reached is left alone.
		"drift waits once the run has written": {ends: 3 * time.Second, stages: []simulated{
			{name: "one", changed: 1, healthyAfter: 2 * time.Second}, {name: "two", drifted: 1, driftsAfter: time.Second},
		}},
		"the cure is written before the patient is judged": {stages: []simulated{{name: "one", changed: 1, broken: true}}},
		// T-60: what needs a CRD is written when it is established.
		"custom resources wait for their CRD": {stages: []simulated{{name: "one", changed: 4, crdAfter: 2 * time.Second}}},
	}
	for name, world := range cases {
		t.Run(name, func(t *testing.T) {
			got := simulate(world)
			golden := filepath.Join("testdata", strings.ReplaceAll(strings.ReplaceAll(name, " ", "-"), ",", "")+".txt")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("transcript (-want +got):\n%s", diff)
			}
		})
	}
}

// simulate runs a release to its end and writes down every decision.
func simulate(w world) string {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now := start
	if w.ends == 0 {
		w.ends = time.Hour
	}
	written := make([]time.Time, len(w.stages))
	remaining, drifted := make([]int, len(w.stages)), make([]int, len(w.stages))
	for i, stage := range w.stages {
		remaining[i], drifted[i] = stage.changed, stage.drifted
	}
	begun := false
	started := make([]time.Time, len(w.stages))
	var out strings.Builder
	for now.Sub(start) < w.ends {
		stages := make([]Stage, 0, len(w.stages))
		for i, stage := range w.stages {
			seen := stage.seen(now, start, written[i], started[i], remaining[i])
			if drifted[i] > 0 && now.Sub(start) >= stage.driftsAfter {
				seen.Remaining += drifted[i]
				if !begun {
					seen.Drifted = drifted[i]
				}
			}
			stages = append(stages, seen)
		}
		decision := Decide(now, stages)
		fmt.Fprintf(&out, "%6s %s", now.Sub(start), decision.Step)
		if decision.Step == Done {
			fmt.Fprintln(&out)
			return out.String()
		}
		if decision.Step == Correct {
			fmt.Fprintf(&out, " %s (%d objects)\n", w.stages[decision.Stage].name, drifted[decision.Stage])
			drifted[decision.Stage] = 0
			continue
		}
		if started[decision.Stage].IsZero() {
			started[decision.Stage] = now
		}
		fmt.Fprintf(&out, " %s", w.stages[decision.Stage].name)
		switch decision.Step {
		case Write:
			fmt.Fprintf(&out, " (%d objects)\n", stages[decision.Stage].Remaining)
			begun, drifted[decision.Stage] = true, 0
			remaining[decision.Stage] = w.stages[decision.Stage].write(remaining[decision.Stage], written[decision.Stage].IsZero())
			if written[decision.Stage].IsZero() {
				written[decision.Stage] = now
			}
		case Wait, Hold:
			fmt.Fprintf(&out, " for %s\n", decision.Pause)
			now = now.Add(decision.Pause)
		case Fail:
			fmt.Fprintln(&out)
			return out.String()
		}
	}
	return out.String()
}

// write is how many objects remain after a write: behind a CRD, half of them.
func (s simulated) write(remaining int, first bool) int {
	if s.crdAfter > 0 && first {
		return remaining / 2
	}
	return 0
}

func (s simulated) seen(now, start, written, started time.Time, remaining int) Stage {
	stage := Stage{Name: s.name, Remaining: remaining, StartedAt: started, Timeout: s.timeout}
	if stage.Timeout == 0 {
		stage.Timeout = 15 * time.Minute
	}
	since := written
	if s.changed == 0 {
		since = start
	}
	key := inventory.Key{Kind: "Thing", Name: s.name}
	if since.IsZero() {
		if s.broken {
			stage.Health.Add(key, health.Result{Verdict: health.Failed, Message: "broken before"})
		}
		return stage
	}
	elapsed := now.Sub(since)
	if s.crdAfter > elapsed {
		stage.Barrier.Add(key, health.Result{Verdict: health.Progressing, Message: "is not established"})
	}
	switch {
	case s.failsAfter > 0 && elapsed >= s.failsAfter:
		stage.Health.Add(key, health.Result{Verdict: health.Failed, Message: "failed"})
	case elapsed < s.healthyAfter:
		stage.Health.Add(key, health.Result{Verdict: health.Progressing, Message: "in progress"})
	}
	return stage
}

// TestPauses shows that what is quick is noticed soon and what is slow costs few requests.
func TestPauses(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var report health.Report
	report.Add(inventory.Key{Kind: "Thing"}, health.Result{Verdict: health.Progressing})
	cases := map[string]struct {
		elapsed time.Duration
		want    Decision
	}{
		"at once":               {elapsed: 0, want: Decision{Step: Wait, Pause: 500 * time.Millisecond}},
		"after ten seconds":     {elapsed: 10 * time.Second, want: Decision{Step: Wait, Pause: 2500 * time.Millisecond}},
		"after a minute":        {elapsed: time.Minute, want: Decision{Step: Wait, Pause: 5 * time.Second}},
		"after two minutes":     {elapsed: 121 * time.Second, want: Decision{Step: Wait, Pause: 15 * time.Second}},
		"at the timeout":        {elapsed: 10 * time.Minute, want: Decision{Step: Wait, Pause: 15 * time.Second}},
		"just over the timeout": {elapsed: 10*time.Minute + 1, want: Decision{Step: Hold, Pause: 15 * time.Second}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			stage := Stage{Health: report, StartedAt: now.Add(-tc.elapsed), Timeout: 10 * time.Minute}
			if diff := cmp.Diff(tc.want, Decide(now, []Stage{stage})); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
	// A stage that needs no write is waited for without having been started.
	want := Decision{Step: Wait, Pause: 500 * time.Millisecond}
	if diff := cmp.Diff(want, Decide(now, []Stage{{Health: report, Timeout: time.Minute}})); diff != "" {
		t.Errorf("decision on a stage that is reached now (-want +got):\n%s", diff)
	}
}
