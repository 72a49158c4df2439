package controller

import (
	"context"
	"errors"
	"time"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/release"
)

// maintain sets right, once in an interval, what others did to the release that was applied last, while nothing newer can be
// applied because of the failure, and looks how it is. What others did to what is not at hand to be applied again is said. A
// release that has begun to write is left to its own stages.
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
	snap.tellDetected(r.look(ctx, snap, run), why)
}

// dueToMaintain is true once in an interval, the one that policies may have filled in, when somebody asks for a pass, and in
// every pass while what runs is not healthy.
func (r *Reconciler) dueToMaintain(snap *snapshot, now time.Time) bool {
	return now.Sub(snap.memo.maintained) >= r.interval(snap.effective) || asked(snap.set) || snap.memo.running != nil
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
	memory := snap.remembered()
	applied, err := r.Pipeline.Maintain(ctx, set, snap.memo.pins, review, memory)
	if err != nil {
		return &release.Run{}, err
	}
	snap.without = append(snap.without, applied.Pinned.Redact)
	run := r.run(snap, applied, memory, false)
	err = run.Correct(ctx, snap.book)
	snap.tellCorrected(run.Corrected())
	return run, err
}

// errForgotten is why nothing of the last applied release is at hand after a start.
var errForgotten = errors.New("the reconciler was restarted after it was applied")
