package teardown

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/ownership"
	"github.com/stageset/stageset/reconciler/prune"
	"github.com/stageset/stageset/reconciler/tenant"
)

func TestObjectsThatCannotBeDeleted(t *testing.T) {
	local := inventory.ID{Target: v1.InventoryTarget{Cluster: v1.ClusterLocal, ServiceAccountName: "deployer"}}
	remote := inventory.ID{Target: v1.InventoryTarget{Cluster: "5f1c", ServiceAccountName: "deployer"}}
	gone := failure.NewStalled(v1.ReasonKubeConfigInvalid, "no such Secret: %w", tenant.ErrGone)
	missing := failure.NewStalled(v1.ReasonServiceAccountNotFound, "no such account")
	config := inventory.Key{Kind: "ConfigMap", Namespace: "team-a", Name: "a"}
	itself := inventory.Key{Kind: "ServiceAccount", Namespace: "team-a", Name: "deployer"}
	namesake := inventory.Key{Kind: "ServiceAccount", Namespace: "team-b", Name: "deployer"}
	cases := map[string]struct {
		record  inventory.ID
		key     inventory.Key
		err     error
		unseen  bool
		orphans []inventory.Key
		lost    []inventory.Key
		failed  bool
	}{
		"refused":                         {record: local, key: config, err: errors.New("no"), unseen: true, failed: true},
		"nobody left to delete it":        {record: local, key: config, err: missing, orphans: []inventory.Key{config}},
		"the account itself, now gone":    {record: local, key: itself, err: missing},
		"another account of the name":     {record: local, key: namesake, err: missing, orphans: []inventory.Key{namesake}},
		"the account itself, not allowed": {record: local, key: itself, err: errors.New("no"), unseen: true, failed: true},
		"nothing leads there any more":    {record: remote, key: config, err: gone, lost: []inventory.Key{config}},
		// T-04: no account is needed there, so its namesake is an object like any other.
		"a namesake on another cluster": {record: remote, key: itself, err: missing, orphans: []inventory.Key{itself}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			place := tc.record.Place(tc.key)
			result := Result{Unseen: map[inventory.Place]bool{place: true}}
			result.fail(prune.Failure{Key: tc.key, Err: tc.err}, tc.record, "team-a")
			if result.Unseen[place] != tc.unseen || (len(result.Failed) > 0) != tc.failed {
				t.Errorf("unseen %t, failed %v, want %t and %t", result.Unseen[place], result.Failed, tc.unseen, tc.failed)
			}
			if diff := cmp.Diff(tc.orphans, result.Orphans.Keys); diff != "" {
				t.Errorf("orphans (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.lost, result.Lost.Keys); diff != "" {
				t.Errorf("lost (-want +got):\n%s", diff)
			}
		})
	}
}

// T-74: only what the account may not do is given up some day; what a policy or a webhook denies is meant to stay.
func TestDeniedIsNotForbidden(t *testing.T) {
	key := inventory.Key{Kind: "ConfigMap", Namespace: "team-a", Name: "a"}
	forbidden := prune.Failure{Key: key, Err: apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "a", nil)}
	denied := forbidden
	denied.Denied = true
	away := prune.Failure{Key: key, Err: errors.New("no"), OutOfReach: true}
	for name, tc := range map[string]struct {
		failed []prune.Failure
		want   failure.Kind
	}{
		"out of reach":         {failed: []prune.Failure{away, forbidden}, want: failure.Stalled},
		"forbidden":            {failed: []prune.Failure{forbidden, forbidden}, want: failure.Stalled},
		"denied":               {failed: []prune.Failure{denied}, want: failure.Transient},
		"forbidden and denied": {failed: []prune.Failure{denied, forbidden}, want: failure.Transient},
		"no answer":            {failed: []prune.Failure{{Key: key, Err: errors.New("no")}}, want: failure.Transient},
	} {
		t.Run(name, func(t *testing.T) {
			failed := failure.From(Result{Failed: tc.failed}.Failure(v1.ReasonPermissionsMissing))
			if failed.Kind != tc.want {
				t.Errorf("kind %v, want %v", failed.Kind, tc.want)
			}
		})
	}
}

// A server of another cluster that fails, as without its etcd's quorum, is as good as away: some day the deletion is given up.
// The cluster of the StageSet is waited for, and so is what only collides with somebody else's write.
func TestAServerThatFailsIsOutOfReach(t *testing.T) {
	local := inventory.ID{Target: v1.InventoryTarget{Cluster: v1.ClusterLocal, ServiceAccountName: "deployer"}}
	remote := inventory.ID{Target: v1.InventoryTarget{Cluster: "5f1c", ServiceAccountName: "deployer"}}
	failing := apierrors.NewInternalError(errors.New("etcdserver: no leader"))
	for name, tc := range map[string]struct {
		record inventory.ID
		err    error
		want   failure.Kind
	}{
		"another cluster's server fails": {record: remote, err: failing, want: failure.Stalled},
		"this cluster's server fails":    {record: local, err: failing, want: failure.Transient},
		"a conflict on another cluster": {
			record: remote, err: apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "a", nil), want: failure.Transient,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var result Result
			result.fail(prune.Failure{Key: inventory.Key{Kind: "ConfigMap", Name: "a"}, Err: tc.err}, tc.record, "team-a")
			if got := failure.From(result.Failure(v1.ReasonPermissionsMissing)); got.Kind != tc.want {
				t.Errorf("%v is %s, want %s", tc.err, got.Kind, tc.want)
			}
		})
	}
}

// A stage that changed its account in a release that never ended, while its object was made anew, has two entries: that one
// of them leads to nothing any more says nothing about the other.
func TestAnObjectIsSeenGoneOnlyForAllItsEntries(t *testing.T) {
	place := inventory.Place{
		Cluster: v1.ClusterLocal, Key: inventory.Key{Kind: "ConfigMap", Namespace: "team-a", Name: "a"},
	}
	result := Result{Unseen: map[inventory.Place]bool{place: true}, entries: map[inventory.Place]int{place: 2}}
	for _, unseen := range []bool{true, false} {
		result.settle(place)
		if result.Unseen[place] != unseen {
			t.Errorf("unseen %t, want %t", result.Unseen[place], unseen)
		}
	}
	result = Result{Unseen: map[inventory.Place]bool{place: true}, entries: map[inventory.Place]int{place: 2}}
	for _, doubtful := range []int{0, 1} {
		result.doubt(place)
		if len(result.Doubtful.Keys) != doubtful {
			t.Errorf("doubtful are %v, want %d", result.Doubtful.Keys, doubtful)
		}
	}
}

// T-71: nothing that the StageSet, or the product, lives in is deleted, whoever applied it.
func TestWhatIsSpared(t *testing.T) {
	crd := func(name string) inventory.Key {
		return inventory.Key{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: name}
	}
	spared := []inventory.Key{
		{Kind: "Namespace", Name: "team-a"}, {Kind: "Namespace", Name: "stageset-system"}, crd("stagesets.stages.metio.wtf"),
	}
	down := Teardown{
		Owner: ownership.Owner{Namespace: "team-a", Name: "shop"}, Home: "stageset-system",
		Prune: func(string, bool) bool { return true },
	}
	local := inventory.ID{Target: v1.InventoryTarget{Cluster: v1.ClusterLocal}}
	var leftovers []inventory.Leftover
	for _, key := range spared {
		entry := v1.InventoryEntry{Group: key.Group, Kind: key.Kind, Name: key.Name}
		leftovers = append(leftovers, inventory.Leftover{Record: local, Entry: entry})
	}
	result := down.run(t.Context(), leftovers)
	if diff := cmp.Diff(spared, result.Spared.Keys); diff != "" {
		t.Errorf("spared (-want +got):\n%s", diff)
	}
	if len(result.Unseen)+len(result.Failed)+len(result.Orphans.Keys) > 0 {
		t.Errorf("they are tried, or stay in the inventory: %+v", result)
	}
	for _, key := range []inventory.Key{
		{Kind: "Namespace", Name: "team-b"}, crd("widgets.example.com"), crd("notstages.metio.wtf"),
		{Group: "example.com", Kind: "Namespace", Name: "team-a"},
	} {
		if down.spared(local, key) {
			t.Errorf("%s is spared", key)
		}
	}
	for _, key := range spared {
		if down.spared(inventory.ID{Target: v1.InventoryTarget{Cluster: "5f1c"}}, key) {
			t.Errorf("%s is spared on another cluster, where nothing of ours lives", key)
		}
	}
}

// What takes long is looked at less often, and what has only just begun soon.
func TestPauseOfWhatIsBeingDeleted(t *testing.T) {
	cases := map[string]struct {
		waited []time.Duration // of one step after the other
		want   time.Duration
	}{
		"just begun":            {waited: []time.Duration{0}, want: time.Second},
		"a while":               {waited: []time.Duration{30 * time.Second}, want: 7 * time.Second},
		"an hour":               {waited: []time.Duration{time.Hour}, want: 15 * time.Second},
		"overdue, and the next": {waited: []time.Duration{time.Hour, 0}, want: time.Second},
		"both for a while":      {waited: []time.Duration{20 * time.Second, time.Hour}, want: 5 * time.Second},
		"nothing is waited for": {},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var result Result
			for _, waited := range tc.waited {
				result.wait([]inventory.Key{{}}, waited)
			}
			if result.Pause != tc.want || len(result.Waiting) != len(tc.waited) {
				t.Errorf("pause %s, want %s", result.Pause, tc.want)
			}
		})
	}
}

// What asks never to be deleted is neither deleted nor an orphan.
func TestWhatIsKeptIsNoOrphan(t *testing.T) {
	entry := v1.InventoryEntry{Kind: "ConfigMap", Namespace: "team-b", Name: "kept", Keep: true}
	down := Teardown{
		Owner: ownership.Owner{Namespace: "team-a", Name: "shop"}, Prune: func(string, bool) bool { return true },
	}
	if left := down.pruned([]inventory.Leftover{{Entry: entry}}); len(left) > 0 {
		t.Errorf("it is to be deleted: %v", left)
	}
}
