package controller

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/inventory/store"
	"github.com/stageset/stageset/reconciler/teardown"
)

// The cache of a process that has just begun to lead may lag behind what the one before it applied (I3, I6).
func TestAnInventoryThatTheCacheDoesNotShowIsNotGivenUp(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	set := &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "shop"}}
	entry := v1.InventoryEntry{Version: "v1", Kind: "ConfigMap", Namespace: "team-a", Name: "a"}
	shard := inventory.Split(set, inventory.Record{
		Stage: "app", Entries: map[inventory.Key]v1.InventoryEntry{inventory.EntryKey(entry): entry},
	})[0]
	cache := func(objects ...client.Object) client.Client {
		return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
			WithIndex(&v1.StageInventory{}, store.IndexStageSet, store.StageSetOf).Build()
	}
	shrunk := shard.DeepCopy()
	shrunk.Spec.Entries = nil
	for name, cached := range map[string][]client.Object{"no inventory": nil, "an earlier state": {shrunk}} {
		t.Run(name, func(t *testing.T) {
			book, err := store.New(cache(cached...)).Open(t.Context(), set)
			if err != nil {
				t.Fatal(err)
			}
			r := &Reconciler{Live: cache(shard.DeepCopy())}
			ended := r.done(t.Context(), &snapshot{set: set, book: book}, teardown.Orphans{})
			if ended.released || !ended.postponed {
				t.Errorf("the StageSet was let go: %+v", ended)
			}
		})
	}
}

func TestPruneOfTheSpecCounts(t *testing.T) {
	set := &v1.StageSet{Spec: v1.StageSetSpec{Stages: []v1.Stage{
		{Name: "default"}, {Name: "keeps", Prune: ptr.To(false)}, {Name: "deletes", Prune: ptr.To(true)},
	}}}
	cases := map[string]struct {
		stage          string
		recorded, want bool
		unfilled       error
	}{
		"default":                   {stage: "default", recorded: false, want: true},
		"set to false since":        {stage: "keeps", recorded: true, want: false},
		"set to true since":         {stage: "deletes", recorded: false, want: true},
		"a stage that is gone":      {stage: "gone", recorded: true, want: true},
		"one that kept and is gone": {stage: "gone", recorded: false, want: false},
		// What a policy would have filled in nobody knows then.
		"kept by a policy that is broken now": {stage: "deletes", recorded: false, want: false, unfilled: errors.New("broken")},
		"deleted whatever a broken policy":    {stage: "deletes", recorded: true, want: true, unfilled: errors.New("broken")},
		"kept whatever a broken policy":       {stage: "keeps", recorded: true, want: false, unfilled: errors.New("broken")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			snap := &snapshot{effective: set, unfilled: tc.unfilled}
			if got := prunes(snap, tc.stage, tc.recorded); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

// What counts is how long a deletion has been stuck, not how long it has waited for finalizers before; and a process that
// has just begun goes by what the status says.
func TestStuckSince(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	condition := func(kind, reason string, hours int) []metav1.Condition {
		at := metav1.NewTime(noon.Add(time.Duration(hours) * time.Hour))
		return []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue, Reason: reason, LastTransitionTime: at}}
	}
	cases := map[string]struct {
		conditions []metav1.Condition
		since      time.Time
		stuck      bool
	}{
		"never tried":               {},
		"waits for a finalizer":     {conditions: condition(v1.ConditionReconciling, v1.ReasonTerminating, 0)},
		"stalled by something else": {conditions: condition(v1.ConditionStalled, v1.ReasonBuildFailed, -1)},
		"forbidden after two hours": {
			conditions: condition(v1.ConditionStalled, v1.ReasonPermissionsMissing, 2), since: noon.Add(2 * time.Hour), stuck: true,
		},
		"out of reach after an hour": {
			conditions: condition(v1.ConditionStalled, v1.ReasonTargetUnreachable, 1), since: noon.Add(time.Hour), stuck: true,
		},
		"forbidden before the deletion": {
			conditions: condition(v1.ConditionStalled, v1.ReasonPermissionsMissing, -1), since: noon, stuck: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set := &v1.StageSet{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: ptr.To(metav1.NewTime(noon))}}
			set.Status.Conditions = tc.conditions
			since, stuck := stuckSince(set)
			if !since.Equal(tc.since) || stuck != tc.stuck {
				t.Errorf("got %s, %t, want %s, %t", since, stuck, tc.since, tc.stuck)
			}
		})
	}
}
