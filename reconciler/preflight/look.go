package preflight

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/drift"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/health"
	"github.com/stageset/stageset/reconciler/inventory"
)

// Look reads what the entries name, as the stage's account. Objects that do not exist, or are others than the entries name,
// are not in the answer. Its error is a *failure.Error.
func (c Cleared) Look(ctx context.Context, stage ClearedStage, entries []v1.InventoryEntry) (drift.Snapshot, error) {
	wanted := make([]drift.Wanted, 0, len(entries))
	for _, entry := range entries {
		wanted = append(wanted, drift.Wanted{InventoryEntry: entry, Judge: stage.judge})
	}
	snapshot, err := drift.Observe(ctx, stage.target, c.applier.Owner, wanted)
	if err != nil {
		return nil, CannotAsk(stage, err)
	}
	for _, entry := range entries {
		key := inventory.EntryKey(entry)
		if live, exists := snapshot[key]; exists && live.UID != entry.UID {
			delete(snapshot, key)
		}
	}
	return snapshot, nil
}

// Live is what is seen of an object that was read from the stage's target.
func (s ClearedStage) Live(ctx context.Context, obj *unstructured.Unstructured) drift.Live {
	return drift.LiveOf(ctx, s.target, s.judge, obj)
}

// LookAt reads a ready check as the stage's account. unserved is true when the API server does not know its kind. Its error is
// a *failure.Error.
func (s ClearedStage) LookAt(ctx context.Context, check ReadyCheck) (result health.Result, unserved bool, err error) {
	obj, err := s.target.Get(ctx, check.Kind, check.Key.Namespace, check.Key.Name)
	switch {
	case meta.IsNoMatchError(err):
		return health.Result{
			Verdict: health.Progressing, Message: "of readyChecks is of a kind that the cluster does not serve",
		}, true, nil
	case apierrors.IsNotFound(err):
		return health.Result{Verdict: health.Progressing, Message: "of readyChecks does not exist yet"}, false, nil
	case apierrors.IsForbidden(err):
		return health.Result{}, false, failure.NewStalled(v1.ReasonAccessDenied, "stage %s, as %s: %s of readyChecks: %w",
			s.name, s.account.Username(), check.Key, err).InStage(s.name)
	case err != nil && IsRefusal(err):
		return health.Result{}, false, failure.NewStalled(v1.ReasonInvalidSpec, "stage %s: %s of readyChecks: %w",
			s.name, check.Key, err).InStage(s.name)
	case err != nil:
		return health.Result{}, false, CannotAsk(s, err)
	}
	return s.Live(ctx, obj).Health, false, nil
}

// Judge says whether objects of the stage are healthy.
func (s ClearedStage) Judge() *health.Judge { return s.judge }

// CannotAsk is the *failure.Error for a target that gives no answer.
func CannotAsk(stage ClearedStage, err error) error { return cannotAsk(stage.name, stage.account, err) }
