package controller

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
)

// reportLost says which stages have applied objects that no inventory records any more. Nothing can be deleted of them:
// what is rendered now is found again by the next apply, and what is not only its labels tell. It is said once for each
// loss that a process sees. A teardown that has begun takes the records away itself.
func (r *Reconciler) reportLost(ctx context.Context, snap *snapshot) error {
	ready := meta.FindStatusCondition(snap.set.Status.Conditions, v1.ConditionReady)
	if ready != nil && ready.Reason == v1.ReasonTerminating {
		return nil
	}
	recorded := map[string]bool{}
	for _, record := range snap.book.Records() {
		recorded[record.Stage] = true
	}
	lost := unrecorded(snap.set, recorded)
	if len(lost) > 0 {
		var err error
		if lost, err = r.lostLive(ctx, client.ObjectKeyFromObject(snap.set)); err != nil {
			return err
		}
	}
	if slices.Equal(lost, snap.memo.lost) {
		return nil
	}
	if snap.memo.lost = lost; len(lost) == 0 {
		return nil
	}
	snap.tellLost(lost)
	return nil
}

// lostLive is what is lost of the StageSet as the API server has it: a process that has just begun may have a cache that is
// behind, of the StageSet as of its inventories.
func (r *Reconciler) lostLive(ctx context.Context, name client.ObjectKey) ([]string, error) {
	sets, err := r.liveSets(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read StageSet %s past the cache: %w", name, err)
	}
	live, err := r.liveInventories(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("look for the inventory: %w", err)
	}
	recorded := map[string]bool{}
	for _, shard := range live {
		recorded[shard.Spec.Stage] = recorded[shard.Spec.Stage] || shard.Spec.StageSet == name.Name
	}
	var lost []string
	for i := range sets {
		lost = append(lost, unrecorded(&sets[i], recorded)...)
	}
	return lost, nil
}

// unrecorded are the stages that the status says to be applied, and no record is of. A stage that has left the spec does not
// count: its record goes when its objects have, and the status tells so only afterwards.
func unrecorded(set *v1.StageSet, recorded map[string]bool) []string {
	inSpec := map[string]bool{}
	for _, stage := range set.Spec.Stages {
		inSpec[stage.Name] = true
	}
	var lost []string
	for _, stage := range set.Status.Stages {
		if inSpec[stage.Name] && stage.Phase == v1.StageReady && stage.Objects > 0 && !recorded[stage.Name] {
			lost = append(lost, stage.Name)
		}
	}
	return lost
}
