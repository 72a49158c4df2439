package release

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/health"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/inventory/store"
	"github.com/stageset/stageset/reconciler/preflight"
)

// checkResult is a ready check with what was last seen of it.
type checkResult struct {
	preflight.ReadyCheck
	result health.Result
	// unserved is true when the API server does not know the kind.
	unserved bool
}

func unlooked(checks []preflight.ReadyCheck) []checkResult {
	results := make([]checkResult, 0, len(checks))
	for _, check := range checks {
		results = append(results, checkResult{
			ReadyCheck: check, result: health.Result{Verdict: health.Progressing, Message: "has not been looked at"},
		})
	}
	return results
}

// look brings what is known of a stage's health up to date: of its written objects, and of its ready checks.
func (r *Run) look(ctx context.Context, _ *store.Book, stage *stage) error {
	ctx, end := r.step(ctx, "health", slog.String("stage", stage.state.Name))
	defer end()
	stage.cleared.Judge().Refill()
	if stage.stale {
		if err := r.lookAtObjects(ctx, stage); err != nil {
			return err
		}
	}
	stage.stale, stage.unlooked = false, false
	for i := range stage.checks {
		check := &stage.checks[i]
		var err error
		if check.result, check.unserved, err = stage.cleared.LookAt(ctx, check.ReadyCheck); err != nil {
			return err
		}
	}
	stage.judge(r.options.Clock.Now())
	return stage.impossible()
}

// lookAtObjects reads the health of a stage's written objects, one LIST for each kind and namespace with objects whose health
// is more than to exist, or that were being deleted.
func (r *Run) lookAtObjects(ctx context.Context, stage *stage) error {
	judge := stage.cleared.Judge()
	var entries []v1.InventoryEntry
	for _, object := range stage.cleared.Objects() {
		key := object.Key()
		result, known := stage.results[key]
		exists := result.Verdict == health.Healthy && judge.NeedsToExist(object.Desired())
		if known && stage.awaits(object) && !exists {
			entries = append(entries, r.entries[key])
		}
	}
	seen, err := r.cleared.Look(ctx, stage.cleared, entries)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		key := inventory.EntryKey(entry)
		live, exists := seen[key]
		if !exists {
			return failure.NewTransient(v1.ReasonProgressing, "%s was deleted by somebody: it is applied again", key).
				InStage(stage.state.Name)
		}
		scaled := live.Generation != entry.Generation && !live.Deleting && live.Health.Verdict == health.Progressing
		if scaled && stage.results[key].Verdict == health.Healthy {
			continue // as it was applied it was healthy; what others ask of it since, such as more replicas, holds nothing up
		}
		stage.results[key] = live.Health
	}
	return nil
}

// impossible says which ready checks wait for nothing: nothing that the stage applies is still on its way, and could bring
// the kind. It is tried again, as everything that is stalled: somebody may install it.
func (s *stage) impossible() error {
	var kinds []string
	for _, check := range s.checks {
		if check.unserved {
			kinds = append(kinds, fmt.Sprintf("%s: the cluster serves no %s of %s", check.Key, check.Kind.Kind, check.Kind.GroupVersion()))
		}
	}
	if len(kinds) == 0 || s.state.Remaining > 0 || len(kinds) < len(s.state.Health.Progressing) || len(s.state.Health.Failed) > 0 {
		return nil
	}
	return failure.NewStalled(v1.ReasonInvalidSpec, "stage %s: readyChecks.checks: %s: correct it, or install what defines the kind",
		s.state.Name, strings.Join(kinds, "; ")).InStage(s.state.Name)
}
