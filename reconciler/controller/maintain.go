package controller

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/pipeline"
	"github.com/stageset/stageset/reconciler/release"
)

// maintain sets right, once in an interval, what others did to the release that was applied last, while nothing newer can be
// applied because of the failure. What is not at hand to be applied again is looked at, and what others did to it is said. A
// release that has begun to write is left to its own stages. Nothing of it changes how the pass ends.
func (r *Reconciler) maintain(ctx context.Context, snap *snapshot, because *failure.Error) {
	if snap.memo.begun || len(snap.book.Records()) == 0 || because.Reason == v1.ReasonTargetUnreachable {
		return
	}
	now := r.Clock.Now()
	if !r.dueToMaintain(snap, now) {
		return
	}
	snap.memo.maintained = now
	run, err := r.correctApplied(ctx, snap)
	why := "while the condition Ready says " + because.Reason
	switch {
	case err != nil && failure.From(err).Reason == v1.ReasonProgressing:
		snap.memo.maintained = time.Time{} // it may be at hand in a moment
		return
	case errors.Is(err, errForgotten):
		why = "since " + errForgotten.Error()
	case err != nil:
		// The reason alone: what is behind it may quote values that are substituted.
		why += ", and rendering it again ends in " + failure.From(err).Reason
	}
	found, err := r.Pipeline.Detect(ctx, snap.set, snap.book.Records(), run.Desired())
	if err != nil {
		log.FromContext(ctx).Info("cannot look for drift", "error", err.Error())
	}
	r.reportDetected(ctx, snap, found, why)
}

// dueToMaintain is true once in an interval, the one that policies may have filled in, and when somebody asks for a pass.
func (r *Reconciler) dueToMaintain(snap *snapshot, now time.Time) bool {
	return now.Sub(snap.memo.maintained) >= r.interval(snap.effective) || asked(snap.set)
}

// correctApplied corrects what is at hand of the last applied release, and returns a run of it; it is empty if nothing is at
// hand, and the error says why. It is reviewed as if it were new: what the policies deny now is not written.
func (r *Reconciler) correctApplied(ctx context.Context, snap *snapshot) (*release.Run, error) {
	if snap.memo.pins == nil {
		return &release.Run{}, errForgotten
	}
	set, review, err := r.Policies.Admit(ctx, snap.set, snap.namespace)
	if err != nil {
		return &release.Run{}, err
	}
	records := snap.book.Records()
	snap.memo.loops.Begin(r.Clock.Now(), r.interval(set), asked(snap.set))
	applied, err := r.Pipeline.Maintain(ctx, set, snap.memo.pins, review, pipeline.Memory{
		Records: records, Loops: &snap.memo.loops, Room: snap.memo.room,
	})
	if err != nil {
		return &release.Run{}, err
	}
	r.reportLooping(snap, applied.Pinned.Redact(applied.Cleared.Looping()))
	run := release.New(applied.Cleared, r.stages(applied.Set, applied.Pinned), applied.Pinned.Recorded(records), release.Options{
		Clock:       r.Clock,
		Concurrency: r.Options.ApplyConcurrency,
		BeforeWrite: func(ctx context.Context) error { return r.addFinalizer(ctx, snap) },
	})
	err = run.Correct(ctx, snap.book)
	r.reportCorrected(ctx, snap.set, run.Corrected(), applied.Pinned.Redact)
	return run, err
}

// errForgotten is why nothing of the last applied release is at hand after a start.
var errForgotten = errors.New("the reconciler was restarted after it was applied")

// reportDetected says, once, what others did to applied objects that are not at hand to be applied again.
func (r *Reconciler) reportDetected(ctx context.Context, snap *snapshot, found pipeline.Drifts, why string) {
	if found.Objects > 0 && found.Text != snap.memo.detected {
		log.FromContext(ctx).Info("drift detected", "objects", found.Text, "why", why)
		related := &corev1.ObjectReference{Kind: found.First.Kind, Namespace: found.First.Namespace, Name: found.First.Name}
		r.Events.Eventf(snap.set, related, corev1.EventTypeWarning, v1.EventDriftDetected, "Correct", "%s",
			note("cannot correct "+found.Text+": what was applied is not at hand "+why))
	}
	snap.memo.detected = found.Text
}
