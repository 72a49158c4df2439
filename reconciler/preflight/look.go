package preflight

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/drift"
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

// Judge says whether objects of the stage are healthy.
func (s ClearedStage) Judge() *health.Judge { return s.judge }

// CannotAsk is the *failure.Error for a target that gives no answer.
func CannotAsk(stage ClearedStage, err error) error { return cannotAsk(stage.name, stage.account, err) }
