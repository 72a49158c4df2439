package teardown

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/prune"
	"github.com/stageset/stageset/reconciler/tenant"
)

func TestObjectsThatCannotBeDeleted(t *testing.T) {
	account := tenant.Account{Namespace: "team-a", Name: "deployer"}
	missing := failure.NewStalled(v1.ReasonServiceAccountNotFound, "no such account")
	config := inventory.Key{Kind: "ConfigMap", Namespace: "team-a", Name: "a"}
	itself := inventory.Key{Kind: "ServiceAccount", Namespace: "team-a", Name: "deployer"}
	namesake := inventory.Key{Kind: "ServiceAccount", Namespace: "team-b", Name: "deployer"}
	cases := map[string]struct {
		key     inventory.Key
		err     error
		unseen  bool
		orphans []inventory.Key
		failed  bool
	}{
		"refused":                         {key: config, err: errors.New("no"), unseen: true, failed: true},
		"nobody left to delete it":        {key: config, err: missing, orphans: []inventory.Key{config}},
		"the account itself, now gone":    {key: itself, err: missing},
		"another account of the name":     {key: namesake, err: missing, orphans: []inventory.Key{namesake}},
		"the account itself, not allowed": {key: itself, err: errors.New("no"), unseen: true, failed: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			result := Result{Unseen: map[inventory.Key]bool{tc.key: true}}
			result.fail(prune.Failure{Key: tc.key, Err: tc.err}, account)
			if result.Unseen[tc.key] != tc.unseen || (len(result.Failed) > 0) != tc.failed {
				t.Errorf("unseen %t, failed %v, want %t and %t", result.Unseen[tc.key], result.Failed, tc.unseen, tc.failed)
			}
			if diff := cmp.Diff(tc.orphans, result.Orphans.Keys); diff != "" {
				t.Errorf("orphans (-want +got):\n%s", diff)
			}
		})
	}
}

// A stage that changed its account in a release that never ended, while its object was made anew, has two entries: that one
// of them leads to nothing any more says nothing about the other.
func TestAnObjectIsSeenGoneOnlyForAllItsEntries(t *testing.T) {
	key := inventory.Key{Kind: "ConfigMap", Namespace: "team-a", Name: "a"}
	result := Result{Unseen: map[inventory.Key]bool{key: true}, entries: map[inventory.Key]int{key: 2}}
	for _, unseen := range []bool{true, false} {
		result.settle(key)
		if result.Unseen[key] != unseen {
			t.Errorf("unseen %t, want %t", result.Unseen[key], unseen)
		}
	}
}
