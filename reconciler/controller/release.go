package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/pipeline"
	"github.com/stageset/stageset/reconciler/release"
	"github.com/stageset/stageset/reconciler/rules"
	"github.com/stageset/stageset/reconciler/status"
)

// defaultTimeout is the schema's default of spec.timeout.
const defaultTimeout = 15 * time.Minute

// candidate is what a pass works on: the defaulted StageSet, what the policies say of it, and its pinned sources.
type candidate struct {
	set    *v1.StageSet
	review *rules.Review
	pinned pipeline.Pinned
	// identity changes with whatever makes a run another one, and content with what it applies.
	identity, content string
	// began is when the run began.
	began time.Time
}

// release is a pass of a StageSet that is neither deleted nor suspended.
func (r *Reconciler) release(ctx context.Context, snap *snapshot) outcome {
	set, review := snap.effective, snap.review
	snap.memo.loops.Begin(r.Clock.Now(), r.interval(set), asked(snap.set))
	if snap.unfilled != nil {
		return r.held(ctx, snap, snap.unfilled)
	}
	if err := review.StageSet(ctx); err != nil {
		return r.held(ctx, snap, err).warned(review)
	}
	snap.memo.follow(set, snap.set)
	snap.known = append(snap.known, review.Identity())
	pinned, err := r.Pipeline.Pin(ctx, set, review)
	snap.without = append(snap.without, pinned.Redact)
	if err != nil {
		return r.held(ctx, snap, err).warned(review)
	}
	snap.known = append(snap.known, pinned.Identity(), pinned.Destination.Access())
	next := snap.memo.resume(candidate{
		set: set, review: review, pinned: pinned, began: r.Clock.Now(), identity: strings.Join(snap.known, " "),
		content: strconv.FormatInt(set.Generation, 10) + " " + pinned.Identity(),
	}, r.interval(set))
	snap.known = append(snap.known, pinned.Dependencies)
	ended := r.advance(ctx, snap, next)
	ended.Revisions = pinned.Revisions()
	ended.RepeatedStage = snap.repeated(ended)
	if ended.Kind == status.Succeeded {
		ended.Message += " at " + status.Short(ended.Revisions)
		if snap.memo.looping != "" {
			ended.Message += "; " + snap.memo.looping
		}
	}
	ended = ended.warned(next.review)
	for i := range ended.Stages {
		ended.Stages[i].Revision = pinned.Stages[i].Pin.Revision
		ended.Stages[i].Digest = pinned.Stages[i].Pin.Digest
	}
	return ended
}

// repeated is the request to apply a stage again if the pass has done so.
func (s *snapshot) repeated(ended outcome) string {
	name, asked := pipeline.RepeatedStage(s.effective)
	at := slices.IndexFunc(s.effective.Spec.Stages, func(stage v1.Stage) bool { return stage.Name == name })
	if asked != "" && at < 0 {
		s.tell(told{
			kind: corev1.EventTypeWarning, reason: v1.ReasonInvalidSpec, action: "Reconcile",
			note: fmt.Sprintf("annotation %s asks for stage %q, which is not in spec.stages", v1.AnnotationReconcileStage, name),
		})
		return asked
	}
	for _, stage := range ended.Stages {
		written := stage.Phase == v1.StageVerifying || stage.Phase == v1.StageReady || stage.Phase == v1.StageHeld ||
			stage.Phase == v1.StageFailed && ended.Failure != nil && ended.Failure.Reason == v1.ReasonHealthCheckFailed
		if stage.Name == name && written {
			return asked
		}
	}
	return ""
}

// failed is the outcome of a pass that ended in an error. What only means that the pass has to start again is no failure.
func failed(err error) outcome {
	failure := failure.From(err)
	if failure.Reason == v1.ReasonProgressing {
		return outcome{
			postponed: true, again: max(failure.RetryAfter, minBackoff), Outcome: status.Outcome{Message: failure.Error()},
		}
	}
	return outcome{Outcome: status.Outcome{Kind: status.Failed, Failure: failure, CurrentStage: failure.Stage}}
}

// warned is the outcome with what the policies warn of behind its message, whatever it is: who looks after policies finds there
// whom they would refuse. It is the same from pass to pass as long as passes come as far.
func (o outcome) warned(review *rules.Review) outcome {
	warnings := review.Warnings()
	if warnings == "" {
		return o
	}
	if o.Failure == nil {
		o.Message += "; policies warn: " + warnings
		return o
	}
	failure := *o.Failure
	failure.Err = fmt.Errorf("%w; policies warn: %s", failure.Err, warnings)
	o.Failure = &failure
	return o
}

// held is the outcome of a pass that ended before anything could be applied: what runs, runs on.
func (r *Reconciler) held(ctx context.Context, snap *snapshot, err error) outcome {
	ended := failed(err)
	if !ended.postponed {
		snap.memo.drop()
		r.maintain(ctx, snap, ended.Failure)
		ended.Running = snap.memo.running
	}
	return ended
}

// advance begins a run, or goes on with the one that is kept, and carries it as far as it goes.
func (r *Reconciler) advance(ctx context.Context, snap *snapshot, next candidate) outcome {
	run := snap.memo.run
	if run == nil {
		var err error
		if run, err = r.begin(ctx, snap, next); err != nil {
			ended := r.held(ctx, snap, err)
			ended.Checked = ended.Failure != nil && ended.Failure.Reason == v1.ReasonPermissionsMissing
			return ended
		}
	} else {
		snap.memo.resumed(run.Size())
	}
	// Only a run that waits is kept; every other end starts anew.
	snap.memo.drop()
	progress, err := run.Advance(ctx, snap.book)
	snap.memo.begun = run.Begun()
	snap.tellCorrected(run.Corrected())
	snap.tellRecreating(run.Recreating())
	ended := outcome{again: progress.Pause}
	ended.CurrentStage = progress.Name
	switch {
	case err != nil:
		ended = failed(err)
		ended.CurrentStage = progress.Name
	case progress.Failed():
		ended.Kind, ended.Failure = status.Failed, failure.NewStalled(v1.ReasonHealthCheckFailed,
			"stage %s: %s", progress.Name, progress.Health.FailedMessage()).InStage(progress.Name)
	case progress.Held():
		snap.memo.keep(run, next, run.Size())
		ended.Kind, ended.Failure = status.Failed, failure.NewWaiting(v1.ReasonHealthCheckTimedOut, progress.Pause,
			"stage %s is not healthy within its timeout: %s", progress.Name, progress.Health.ProgressingMessage()).InStage(progress.Name)
	case !progress.Done():
		snap.memo.keep(run, next, run.Size())
		ended.Kind = status.Progressing
		ended.Message = fmt.Sprintf("stage %s waits for %s", progress.Name, progress.Health.ProgressingMessage())
	default:
		ended = r.finish(ctx, snap, run, next.pinned)
	}
	ended.Stages, ended.Begun = run.Status(progress, ended.Kind == status.Failed), run.Begun()
	ended.Checked = true
	return ended
}

// begin prepares a run: everything that is checked before the first write.
func (r *Reconciler) begin(ctx context.Context, snap *snapshot, next candidate) (*release.Run, error) {
	memory := snap.remembered()
	cleared, err := r.Pipeline.Prepare(ctx, next.set, next.pinned, next.review, memory)
	if err != nil {
		return nil, err
	}
	begun := snap.memo.hasBegun(next.content, midway(snap.set, next.pinned.Revisions()))
	return r.run(snap, pipeline.Cleared{Set: next.set, Pinned: next.pinned, Cleared: cleared}, memory, begun), nil
}

// remembered is what the pass has of the process's memory.
func (s *snapshot) remembered() pipeline.Memory {
	return pipeline.Memory{Records: s.book.Records(), Loops: &s.memo.loops, Room: s.memo.room}
}

// run is a run of a cleared release; begun is true when something of it was written that was not applied before.
func (r *Reconciler) run(snap *snapshot, of pipeline.Cleared, memory pipeline.Memory, begun bool) *release.Run {
	snap.tellLooping(of.Cleared.Looping())
	return release.New(of.Cleared, r.stages(of.Set, of.Pinned), of.Pinned.Recorded(memory.Records), release.Options{
		Clock:       r.Clock,
		Concurrency: r.Options.ApplyConcurrency,
		Step:        Steps{Clock: r.Clock}.Begin,
		Begun:       begun,
		BeforeWrite: func(ctx context.Context) error { return r.addFinalizer(ctx, snap) },
	})
}

// asked is true when somebody asks for a pass now.
func asked(set *v1.StageSet) bool {
	requested, isSet := set.Annotations[v1.AnnotationRequestedAt]
	return isSet && requested != set.Status.LastHandledReconcileAt
}

// midway is true when an earlier process had written some of this release, and not reached all of its stages: as long as
// nothing is written, the status leaves them as the last release has left them.
func midway(set *v1.StageSet, revisions map[string]string) bool {
	return set.Status.ObservedGeneration == set.Generation && maps.Equal(set.Status.LastAttemptedRevisions, revisions) &&
		slices.ContainsFunc(set.Status.Stages, func(stage v1.StageStatus) bool { return stage.Phase == v1.StagePending })
}

// stages is what a run has to know of each stage.
func (r *Reconciler) stages(set *v1.StageSet, pinned pipeline.Pinned) []release.Stage {
	ids := pinned.RecordIDs()
	stages := make([]release.Stage, 0, len(ids))
	for i, spec := range set.Spec.Stages {
		stages = append(stages, release.Stage{
			Record:      ids[i],
			Prune:       spec.Prunes(),
			Timeout:     timeout(set, spec),
			StartedAt:   startedAt(set, spec.Name, pinned.Stages[i].Pin.Digest),
			DisableWait: readyChecks(spec).DisableWait,
		})
	}
	return stages
}

// readyChecks are a stage's ready checks; those of a stage that sets none are empty.
func readyChecks(stage v1.Stage) *v1.ReadyChecks { return cmp.Or(stage.ReadyChecks, &v1.ReadyChecks{}) }

func timeout(set *v1.StageSet, stage v1.Stage) time.Duration {
	for _, configured := range []*metav1.Duration{readyChecks(stage).Timeout, stage.Timeout, set.Spec.Timeout} {
		if configured != nil {
			return configured.Duration
		}
	}
	return defaultTimeout
}

// startedAt is when an earlier process began the stage of the same run: a restart does not give it its timeout again, but
// a change of the spec does.
func startedAt(set *v1.StageSet, name, digest string) time.Time {
	if set.Status.ObservedGeneration != set.Generation {
		return time.Time{}
	}
	for _, stage := range set.Status.Stages {
		if stage.Name != name || stage.Digest != digest || stage.StartedAt == nil {
			continue
		}
		switch stage.Phase {
		case v1.StageApplying, v1.StageVerifying, v1.StageHeld:
			return stage.StartedAt.Time
		}
	}
	return time.Time{}
}

// finish deletes what left the release and brings the inventories to what is.
func (r *Reconciler) finish(ctx context.Context, snap *snapshot, run *release.Run, pinned pipeline.Pinned) outcome {
	result := r.teardown(snap).Leftovers(ctx, snap.book, run.Desired(), pinned.Destination.Cluster())
	for _, left := range result.Left() {
		r.tellOrphans(snap, left)
	}
	if err := run.Settle(ctx, snap.book, result.Unseen); err != nil {
		return failed(err)
	}
	if err := result.Failure(v1.ReasonPruneFailed); err != nil {
		return failed(err)
	}
	var ended outcome
	if len(result.Waiting) > 0 {
		ended.Kind, ended.again = status.Progressing, result.Pause
		ended.Message = "waits for the deletion of " + result.WaitsFor()
		return ended
	}
	snap.memo.succeeded(pinned.Pins())
	ended.Kind, ended.Message = status.Succeeded, succeeded(run)
	return ended
}
