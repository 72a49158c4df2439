package prune

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/inventory"
)

func leftover(stage string, position int32, account, group, kind, name string) inventory.Leftover {
	return inventory.Leftover{
		Record:   inventory.ID{Stage: stage, Target: v1.InventoryTarget{ServiceAccountName: account}},
		Position: position, Prune: true,
		Entry: v1.InventoryEntry{Group: group, Version: "v1", Kind: kind, Namespace: "team-a", Name: name},
	}
}

func TestPlan(t *testing.T) {
	cases := map[string]struct {
		leftovers []inventory.Leftover
		want      []string
	}{
		"stages from the last to the first": {
			leftovers: []inventory.Leftover{
				leftover("one", 0, "d", "", "ConfigMap", "a"), leftover("two", 1, "d", "", "ConfigMap", "b"),
			},
			want: []string{"two as d: b", "one as d: a"},
		},
		// T-02: what gives the accounts their rights goes after everything else, the accounts last of all.
		"identity last, whatever its stage": {
			leftovers: []inventory.Leftover{
				leftover("two", 1, "d", "", "ServiceAccount", "d"),
				leftover("two", 1, "d", rbacGroup, "RoleBinding", "bind"),
				leftover("two", 1, "d", rbacGroup, "Role", "role"),
				leftover("one", 0, "d", "", "ConfigMap", "a"),
				leftover("two", 1, "d", "", "ConfigMap", "b"),
			},
			want: []string{"two as d: b", "one as d: a", "two as d: role", "two as d: bind", "two as d: d"},
		},
		"its own account after other accounts": {
			leftovers: []inventory.Leftover{
				leftover("one", 0, "d", "", "ServiceAccount", "d"), leftover("one", 0, "d", "", "ServiceAccount", "other"),
			},
			want: []string{"one as d: other", "one as d: d"},
		},
		// T-111: each account deletes what it applied.
		"accounts apart": {
			leftovers: []inventory.Leftover{
				leftover("db", 0, "web", "", "Secret", "new"), leftover("db", 0, "db-admin", "", "Secret", "old"),
			},
			want: []string{"db as db-admin: old", "db as web: new"},
		},
		"nothing": {},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, step := range Plan(tc.leftovers) {
				var names []string
				for _, entry := range step.Entries {
					names = append(names, entry.Name)
					if identity := entry.Kind != "ConfigMap" && entry.Kind != "Secret"; step.Identity != identity {
						t.Errorf("%s %s is in a step with Identity %t", entry.Kind, entry.Name, step.Identity)
					}
				}
				got = append(got, step.Record.Stage+" as "+step.Record.Target.ServiceAccountName+": "+strings.Join(names, " "))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWavesOfAStepAreReversed(t *testing.T) {
	step := Plan([]inventory.Leftover{
		leftover("one", 0, "d", "", "Namespace", "ns"),
		leftover("one", 0, "d", "", "ConfigMap", "config"),
		leftover("one", 0, "d", "apps", "Deployment", "web"),
	})[0]
	var got []string
	for _, wave := range step.waves() {
		for _, entry := range wave {
			got = append(got, entry.Name)
		}
	}
	if diff := cmp.Diff([]string{"web", "config", "ns"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}
