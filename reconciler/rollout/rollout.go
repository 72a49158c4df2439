// Package rollout decides what a release does next. It is pure: a function from what was seen to the next step, so that a
// whole release can be simulated in a test. It never reads a clock, talks to a cluster, or remembers anything.
package rollout

import (
	"time"

	"github.com/stageset/stageset/reconciler/health"
)

// Step is what to do next.
type Step int

const (
	// Write: write the stage's remaining objects.
	Write Step = iota
	// Correct: write the stage's drifted objects.
	Correct
	// Wait: look at the stage again after the pause.
	Wait
	// Hold: as Wait, but the stage's timeout has passed.
	Hold
	// Fail: an object of the stage says that it will not become healthy.
	Fail
	// Done: every stage is written and healthy.
	Done
)

// String is the step as a transcript has it.
func (s Step) String() string {
	return [...]string{"Write", "Correct", "Wait", "Hold", "Fail", "Done"}[s]
}

// Stage is what is known of one stage in the current run.
type Stage struct {
	// Name is the stage's name.
	Name string
	// Remaining is how many changed objects are not written yet.
	Remaining int
	// Drifted is how many of the remaining objects may be written whatever the stages before say, because they had been
	// applied as they are rendered, and others have changed them since.
	Drifted int
	// Barrier is what the remaining objects cannot be written without, as far as it is written and not healthy.
	Barrier health.Report
	// Health is the health of the objects that are written or need no write, and of the stage's ready checks.
	Health health.Report
	// StartedAt is when the run reached the stage; zero if it has not: its timeout begins now.
	StartedAt time.Time
	// Timeout is how long the stage may take to become healthy.
	Timeout time.Duration
}

// Decision is the next step.
type Decision struct {
	Step Step
	// Stage is the index of the stage that the step is about; the number of stages for Done.
	Stage int
	// Pause is when to look again, for Wait and Hold.
	Pause time.Duration
}

// Decide returns the next step of a run. Drift comes first: it was released before. A stage is reached when every object of
// the one before is healthy, changed or not. What still has to be written is written before anything is judged: it may be
// the cure.
func Decide(now time.Time, stages []Stage) Decision {
	for index, stage := range stages {
		if stage.Drifted > 0 && stage.Barrier.Healthy() {
			return Decision{Step: Correct, Stage: index}
		}
	}
	for index, stage := range stages {
		if decision, done := decideStage(now, stage); !done {
			decision.Stage = index
			return decision
		}
	}
	return Decision{Step: Done, Stage: len(stages)}
}

func decideStage(now time.Time, stage Stage) (decision Decision, done bool) {
	switch {
	case stage.Remaining > 0 && len(stage.Barrier.Failed) > 0:
		return Decision{Step: Fail}, false
	case stage.Remaining > 0 && stage.Barrier.Healthy():
		return Decision{Step: Write}, false
	case stage.Remaining == 0 && len(stage.Health.Failed) > 0:
		return Decision{Step: Fail}, false
	case stage.Remaining > 0, len(stage.Health.Progressing) > 0:
		return wait(now, stage), false
	default:
		return Decision{}, true
	}
}

// Pauses between two looks at a stage.
const (
	minPause = 500 * time.Millisecond
	maxPause = 5 * time.Second
	// longPause is the pause of a stage that has been waited for longer than longWait.
	longPause = 15 * time.Second
	longWait  = 2 * time.Minute
)

func wait(now time.Time, stage Stage) Decision {
	var elapsed time.Duration
	if !stage.StartedAt.IsZero() {
		elapsed = now.Sub(stage.StartedAt)
	}
	if elapsed > stage.Timeout {
		return Decision{Step: Hold, Pause: longPause}
	}
	return Decision{Step: Wait, Pause: pause(elapsed)}
}

// pause grows with the time that was waited: what is quick is noticed soon, what is slow costs few requests.
func pause(elapsed time.Duration) time.Duration {
	if elapsed > longWait {
		return longPause
	}
	return min(max((elapsed/4).Truncate(100*time.Millisecond), minPause), maxPause)
}
