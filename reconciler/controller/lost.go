package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/pipeline"
)

// reportLost says which stages have applied objects that no inventory records any more. Nothing can be deleted of them: what
// is rendered now is found again by the next apply, and what is not only its labels tell. It is said once for each loss that a
// process sees. A teardown that has begun takes the records away itself.
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
		live, err := r.liveInventories(ctx, client.ObjectKeyFromObject(snap.set))
		if err != nil {
			return fmt.Errorf("look for the inventory: %w", err)
		}
		for _, shard := range live {
			recorded[shard.Spec.Stage] = recorded[shard.Spec.Stage] || shard.Spec.StageSet == snap.set.Name
		}
		lost = unrecorded(snap.set, recorded)
	}
	if slices.Equal(lost, snap.memo.lost) {
		return nil
	}
	if snap.memo.lost = lost; len(lost) == 0 {
		return nil
	}
	message := fmt.Sprintf("the inventory of %s is lost: what is rendered now is recorded when it is applied again, and what "+
		"is not is not deleted. What was applied has the labels %s,%s in (%s)", strings.Join(lost, ", "),
		pipeline.Owner(snap.set).Selector(), v1.LabelStage, strings.Join(lost, ","))
	log.FromContext(ctx).Info(message)
	r.Events.Eventf(snap.set, nil, corev1.EventTypeWarning, v1.EventInventoryLost, "Reconcile", "%s", note(message))
	return nil
}

// unrecorded are the stages that the status says to be applied, and no record is of.
func unrecorded(set *v1.StageSet, recorded map[string]bool) []string {
	var lost []string
	for _, stage := range set.Status.Stages {
		if stage.Phase == v1.StageReady && stage.Objects > 0 && !recorded[stage.Name] {
			lost = append(lost, stage.Name)
		}
	}
	return lost
}
