package release

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/health"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/preflight"
)

// checkResult is a ready check with what was last seen of it.
type checkResult struct {
	check  v1.ReadyCheck
	key    inventory.Key
	result health.Result
}

func unlooked(checks []v1.ReadyCheck) []checkResult {
	results := make([]checkResult, 0, len(checks))
	for _, check := range checks {
		gvk := schema.FromAPIVersionAndKind(check.APIVersion, check.Kind)
		results = append(results, checkResult{
			check:  check,
			key:    inventory.Key{Group: gvk.Group, Kind: gvk.Kind, Namespace: check.Namespace, Name: check.Name},
			result: health.Result{Verdict: health.Progressing, Message: "has not been looked at"},
		})
	}
	return results
}

// look reads the health of a stage's written objects, one LIST for each kind and namespace whose health is more than to
// exist, and of its ready checks.
func (r *Run) look(ctx context.Context, stage *stage) error {
	var entries []v1.InventoryEntry
	for key := range stage.results {
		if !health.ByExistence(key.GroupKind()) {
			entries = append(entries, r.entries[key])
		}
	}
	seen, err := r.cleared.Look(ctx, stage.cleared, entries)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		key := inventory.EntryKey(entry)
		result, exists := seen[key]
		if !exists {
			return failure.NewTransient(v1.ReasonProgressing, "%s was deleted by somebody: it is applied again", key).
				InStage(stage.state.Name)
		}
		stage.results[key] = result
	}
	for i := range stage.checks {
		if err := stage.lookAt(ctx, &stage.checks[i]); err != nil {
			return err
		}
	}
	stage.judge(r.options.Clock.Now())
	return nil
}

// lookAt reads one ready check as the stage's account.
func (s *stage) lookAt(ctx context.Context, check *checkResult) error {
	gvk := schema.FromAPIVersionAndKind(check.check.APIVersion, check.check.Kind)
	obj, err := s.cleared.Target().Get(ctx, gvk, check.check.Namespace, check.check.Name)
	switch {
	case apierrors.IsNotFound(err):
		check.result = health.Result{Verdict: health.Progressing, Message: "of readyChecks does not exist yet"}
	case err != nil && preflight.IsRefusal(err):
		check.result = health.Result{Verdict: health.Failed, Message: "of readyChecks cannot be read: " + err.Error()}
	case err != nil:
		return preflight.CannotAsk(s.cleared, err)
	default:
		check.result = preflight.Health(ctx, s.cleared, obj)
	}
	return nil
}
