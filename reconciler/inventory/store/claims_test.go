package store

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/inventory"
)

// claimants are the StageSets that claim ConfigMap team-a/name.
func claimants(t *testing.T, store *Store, name string) []string {
	t.Helper()
	claims, err := store.Claims(t.Context(), inventory.Place{
		Cluster: v1.ClusterLocal, Key: inventory.Key{Kind: "ConfigMap", Namespace: "team-a", Name: name},
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(claims, func(a, b inventory.Claim) int { return cmp.Compare(a.Namespace+a.Name, b.Namespace+b.Name) })
	var found []string
	for _, claim := range claims {
		found = append(found, fmt.Sprintf("%s/%s of %s", claim.Namespace, claim.Name, claim.Created.UTC().Format(time.TimeOnly)))
	}
	return found
}

// T-68: who has an object in its inventory is known across namespaces, at once, and as long as the StageSet exists.
func TestClaims(t *testing.T) {
	lag := newLagging(t)
	store := New(lag)
	at := func(hour int) metav1.Time { return metav1.NewTime(time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC)) }
	other := &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: "shop", UID: "v", CreationTimestamp: at(2)}}
	mine := owner.DeepCopy()
	mine.CreationTimestamp = at(1)
	for _, set := range []*v1.StageSet{mine, other} {
		if err := lag.Create(t.Context(), set); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(when, name string, want ...string) {
		t.Helper()
		if diff := gocmp.Diff(want, claimants(t, store, name)); diff != "" {
			t.Errorf("claims of %s, %s (-want +got):\n%s", name, when, diff)
		}
	}

	lag.freeze(t)
	save(t, open(t, store), record("a", "b"))
	expect("the cache lags", "a", "team-a/shop of 01:00:00")
	expect("the cache lags", "c")

	lag.frozen = nil
	theirs, err := store.Open(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	save(t, theirs, record("a"))
	expect("both write ahead", "a", "team-a/shop of 01:00:00", "team-b/shop of 02:00:00")

	lag.freeze(t)
	save(t, theirs, record("c"))
	expect("one lets go, the cache lags", "c", "team-b/shop of 02:00:00")

	lag.frozen = nil
	expect("one lets go", "a", "team-a/shop of 01:00:00")
	expect("a new process", "b", "team-a/shop of 01:00:00")
	store = New(lag)
	expect("a new process", "c", "team-b/shop of 02:00:00")

	if err := lag.Delete(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	expect("the StageSet is gone", "c")
}
