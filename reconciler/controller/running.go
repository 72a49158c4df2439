package controller

import (
	"context"
	"fmt"
	"time"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/pipeline"
	"github.com/stageset/stageset/reconciler/release"
	"github.com/stageset/stageset/reconciler/status"
)

// lookPause is when what runs is looked at again that was not healthy while a newer release is held.
const lookPause = 30 * time.Second

// suspended is a pass of a StageSet that is suspended. What runs is looked at as often as otherwise, and left as it is.
func (r *Reconciler) suspended(ctx context.Context, snap *snapshot) outcome {
	snap.memo.drop()
	if now := r.Clock.Now(); r.dueToMaintain(snap, now) {
		snap.memo.maintained = now
		r.look(ctx, snap, &release.Run{})
	}
	return outcome{Outcome: status.Outcome{Kind: status.Suspended, Running: snap.memo.running}}
}

// look finds out how the release is that was applied last, and remembers what keeps it from being Ready. It returns what
// others did to objects that the run does not have.
func (r *Reconciler) look(ctx context.Context, snap *snapshot, run *release.Run) pipeline.Drifts {
	seen, err := r.Pipeline.Look(ctx, snap.effective, snap.book.Records(), run.Desired(), r.Clock.Now())
	if (err != nil || !seen.Health.Healthy()) && r.hide(ctx, snap) != nil {
		seen = seen.Withheld()
	}
	if snap.pass.Postponed() || ctx.Err() != nil && !snap.pass.Patient {
		snap.memo.maintained = time.Time{} // it was not looked at
		return seen.Drifts
	}
	snap.memo.running = notReady(seen, err)
	if failed := snap.memo.running; failed != nil {
		failed.Err = redacted(failed.Err, snap.redact) // it is said again in later passes
	}
	return seen.Drifts
}

// notReady is what keeps a release from being Ready that was looked at; nil if nothing does.
func notReady(seen pipeline.Seen, err error) *failure.Error {
	switch {
	case err != nil:
		failed := *failure.From(err)
		failed.Err = fmt.Errorf("cannot look at what runs: %w", failed.Err)
		return &failed
	case len(seen.Health.Failed) > 0:
		return failure.NewStalled(v1.ReasonHealthCheckFailed, "what runs has failed: %s", seen.Health.FailedMessage())
	case len(seen.Health.Progressing) > 0:
		return failure.NewWaiting(v1.ReasonProgressing, lookPause, "what runs is not healthy: %s", seen.Health.ProgressingMessage())
	}
	return nil
}
