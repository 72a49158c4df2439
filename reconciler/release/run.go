// Package release carries a cleared release through its stages: write ahead, apply, look, and no further than what is
// healthy. It never waits: what has to be waited for is in the Progress it returns, and the run goes on in a later pass. It
// deletes nothing but what package apply makes anew.
package release

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/utils/clock"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/health"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/inventory/store"
	"github.com/stageset/stageset/reconciler/preflight"
	"github.com/stageset/stageset/reconciler/rollout"
)

// Stage is what a run has to know of a stage besides its cleared objects.
type Stage struct {
	// Record is the inventory record that the stage is applied under.
	Record inventory.ID
	// Prune is the stage's prune.
	Prune bool
	// Timeout is how long the stage may take to become healthy.
	Timeout time.Duration
	// StartedAt is when an earlier process began this stage of the same run; zero if none did.
	StartedAt time.Time
	// DisableWait is true when the stage does not wait for the health of what it applies.
	DisableWait bool
}

// Options are what a run needs from outside.
type Options struct {
	Clock clock.PassiveClock
	// Concurrency bounds the requests that are under way at once.
	Concurrency int
	// Step begins a step, a stage of the run, or a part of a step, and returns what ends it; nil tells nobody.
	Step func(ctx context.Context, name string, about ...slog.Attr) (within context.Context, end func())
	// Begun is true when an earlier pass has written something of this release that was not applied before: stages that it
	// has not reached are left alone then.
	Begun bool
	// BeforeWrite is called before the first write to a target; it may be called more than once.
	BeforeWrite func(ctx context.Context) error
}

// Run is one release on its way through its stages. It is kept between passes for as long as spec and pins stay the same;
// losing it loses nothing: the next pass finds out everything again. It is not safe for concurrent use.
type Run struct {
	options Options
	cleared preflight.Cleared
	stages  []*stage
	// entries are the inventory entries of all objects of the release, as they are now.
	entries map[inventory.Key]v1.InventoryEntry
	// corrected are the drifted objects that were written since Corrected was asked.
	corrected []*preflight.Object
	// recreating are the objects that were deleted to be made anew since Recreating was asked.
	recreating []inventory.Key
	// begun is true when something was written that was not applied before.
	begun   bool
	resumed bool
}

// stage is a stage of the run with its progress.
type stage struct {
	Stage
	cleared preflight.ClearedStage
	state   rollout.Stage
	written map[inventory.Key]bool
	results map[inventory.Key]health.Result
	checks  []checkResult
	readyAt time.Time
	// stale is true when something of the results is not of this pass, and unlooked when something of the checks is not.
	stale, unlooked bool
}

// New is a run at its beginning. stages has an entry for each cleared stage; recorded are the entries of all inventories.
func New(cleared preflight.Cleared, stages []Stage, recorded map[inventory.Key]v1.InventoryEntry, options Options) *Run {
	run := &Run{
		options: options, cleared: cleared, entries: map[inventory.Key]v1.InventoryEntry{}, begun: options.Begun,
	}
	for i, clearedStage := range cleared.Stages() {
		next := &stage{
			Stage:   stages[i],
			cleared: clearedStage,
			written: map[inventory.Key]bool{},
			results: map[inventory.Key]health.Result{},
			checks:  unlooked(clearedStage.Checks()),
		}
		next.state = rollout.Stage{
			Name: clearedStage.Name(), Timeout: next.Timeout, StartedAt: next.StartedAt,
		}
		for _, object := range clearedStage.Objects() {
			run.entries[object.Key()] = object.Entry(recorded)
			if object.Changed() {
				next.state.Remaining++
				continue
			}
			next.results[object.Key()] = object.Health()
		}
		next.judge(options.Clock.Now())
		run.stages = append(run.stages, next)
	}
	run.countDrift()
	return run
}

// judge derives the stage's health from the results of its objects and checks, and what holds up its next wave.
func (s *stage) judge(now time.Time) {
	s.state.Health, s.state.Barrier = health.Report{}, health.Report{}
	next, remains := s.nextWave()
	for _, object := range s.cleared.Objects() {
		result, known := s.results[object.Key()]
		if !known {
			continue
		}
		result = result.At(now)
		if !s.DisableWait {
			s.state.Health.Add(object.Key(), result)
		}
		if remains && object.Gate() && object.Wave() < next {
			s.state.Barrier.Add(object.Key(), result)
		}
	}
	for _, check := range s.checks {
		s.state.Health.Add(check.Key, check.result.At(now))
	}
}

// awaits is true when the health of an object that is written matters: to the next stage, or to a later wave of its own.
func (s *stage) awaits(object *preflight.Object) bool {
	return !s.DisableWait || object.Gate() && s.state.Remaining > 0
}

// nextWave is the first wave with an object that has to be written; false if there is none.
func (s *stage) nextWave() (int, bool) {
	for _, object := range s.cleared.Objects() {
		if object.Changed() && !s.written[object.Key()] {
			return object.Wave(), true
		}
	}
	return 0, false
}

// Progress is how far a pass came.
type Progress struct {
	rollout.Decision
	// Stage is the name of the stage that the decision is about; empty for Done.
	Name string
	// Health is the health of that stage.
	Health health.Report
}

// Done is true when every stage is written and healthy.
func (p Progress) Done() bool { return p.Step == rollout.Done }

// Failed is true when an object of the stage says that it will not become healthy.
func (p Progress) Failed() bool { return p.Step == rollout.Fail }

// Held is true when the stage is not healthy within its timeout.
func (p Progress) Held() bool { return p.Step == rollout.Hold }

// Advance carries the run on until it is done, has to wait, or fails. A *failure.Error from a write is returned with the
// progress so far; the run must then be dropped.
func (r *Run) Advance(ctx context.Context, book *store.Book) (Progress, error) {
	for _, stage := range r.stages {
		stage.stale, stage.unlooked = r.resumed, len(stage.checks) > 0
	}
	next := r.next()
	for next.stage != nil {
		var err error
		if next, err = r.workOn(ctx, book, next); err != nil {
			return r.progress(next.decision), err
		}
	}
	r.resumed = true
	return r.progress(next.decision), nil
}

// action is what a run does next, and to which stage; it waits or ends if that is nil.
type action struct {
	decision rollout.Decision
	stage    *stage
	do       func(ctx context.Context, book *store.Book, stage *stage) error
}

func (r *Run) next() action {
	decision := rollout.Decide(r.options.Clock.Now(), r.states())
	if decision.Step != rollout.Correct {
		r.mark(decision.Stage)
	}
	switch stale := r.stale(decision); {
	case stale != nil:
		return action{decision, stale, r.look}
	case decision.Step == rollout.Write:
		return action{decision, r.stages[decision.Stage], r.write}
	case decision.Step == rollout.Correct:
		return action{decision, r.stages[decision.Stage], r.correct}
	}
	return action{decision: decision}
}

// workOn does what is next to a stage for as long as it is about that stage, and returns what is next then, or what failed.
func (r *Run) workOn(ctx context.Context, book *store.Book, next action) (action, error) {
	stage := next.stage
	ctx, end := r.step(ctx, "stage", slog.String("stage", stage.state.Name))
	defer end()
	for next.stage == stage {
		if err := next.do(ctx, book, stage); err != nil {
			return next, err
		}
		next = r.next()
	}
	return next, nil
}

// step begins a step; what it returns ends it.
func (r *Run) step(ctx context.Context, name string, about ...slog.Attr) (within context.Context, end func()) {
	if r.options.Step == nil {
		return ctx, func() {}
	}
	return r.options.Step(ctx, name, about...)
}

// stale is a stage that has to be looked at before the decision is carried out; nil if there is none. A wait is about its
// own stage; what goes beyond a stage is about all up to it: they were healthy when they were left, and have to be still.
func (r *Run) stale(decision rollout.Decision) *stage {
	first, last := 0, decision.Stage
	switch decision.Step {
	case rollout.Correct:
		return nil
	case rollout.Wait, rollout.Hold, rollout.Fail:
		first, last = decision.Stage, decision.Stage+1
	}
	for _, stage := range r.stages[first:last] {
		if stage.stale || stage.unlooked {
			return stage
		}
	}
	return nil
}

func (r *Run) states() []rollout.Stage {
	states := make([]rollout.Stage, 0, len(r.stages))
	for _, stage := range r.stages {
		states = append(states, stage.state)
	}
	return states
}

// mark notes when stages are reached and left.
func (r *Run) mark(current int) {
	now := r.options.Clock.Now()
	for index, stage := range r.stages {
		fellBack := index == current && !stage.readyAt.IsZero() // it was healthy, and has its timeout again
		if index <= current && stage.state.StartedAt.IsZero() || fellBack {
			stage.state.StartedAt, stage.readyAt = now, time.Time{}
		}
		if index < current && stage.readyAt.IsZero() {
			stage.readyAt = now
		}
	}
}

func (r *Run) progress(decision rollout.Decision) Progress {
	progress := Progress{Decision: decision}
	if decision.Stage < len(r.stages) {
		progress.Name = r.stages[decision.Stage].state.Name
		progress.Health = r.stages[decision.Stage].state.Health
	}
	return progress
}
