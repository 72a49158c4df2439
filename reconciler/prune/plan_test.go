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

// in puts a leftover into a namespace.
func in(namespace string, leftover inventory.Leftover) inventory.Leftover {
	leftover.Entry.Namespace = namespace
	return leftover
}

// by says of which kind the object was that led to another cluster.
func by(kind string, leftover inventory.Leftover) inventory.Leftover {
	leftover.Record.Target.KubeConfig = v1.InventoryKubeConfig{Kind: kind, Name: "remote"}
	return leftover
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
			want: []string{
				"two as d: b", "one as d: a",
				"two as d: role (identity)", "two as d: bind (identity)", "two as d: d (identity)",
			},
		},
		"its own account after other accounts of the StageSet": {
			leftovers: []inventory.Leftover{
				leftover("one", 0, "d", "", "ServiceAccount", "d"), leftover("one", 0, "d", "", "ServiceAccount", "e"),
				leftover("two", 1, "e", "", "ConfigMap", "a"),
			},
			want: []string{"two as e: a", "one as d: e (identity)", "one as d: d (identity)"},
		},
		// The role of a later stage may only be deletable with the binding of an earlier one.
		"identity in reverse stage order": {
			leftovers: []inventory.Leftover{
				leftover("one", 0, "admin", rbacGroup, "Role", "role"),
				leftover("one", 0, "admin", rbacGroup, "RoleBinding", "bind"),
				leftover("two", 1, "d", rbacGroup, "Role", "role2"),
				leftover("two", 1, "d", rbacGroup, "RoleBinding", "bind2"),
			},
			want: []string{
				"two as d: role2 (identity)", "two as d: bind2 (identity)",
				"one as admin: role (identity)", "one as admin: bind (identity)",
			},
		},
		"an account that is nobody's in its stage": {
			leftovers: []inventory.Leftover{
				in("", leftover("one", 0, "admin", "", "Namespace", "team-b")),
				in("team-b", leftover("one", 0, "admin", rbacGroup, "RoleBinding", "bind")),
				in("team-b", leftover("two", 1, "d", "", "ServiceAccount", "web")),
			},
			want: []string{"two as d: web", "one as admin: team-b bind"},
		},
		"an account of the name in another namespace": {
			leftovers: []inventory.Leftover{
				in("", leftover("one", 0, "admin", "", "Namespace", "team-b")),
				in("team-b", leftover("two", 1, "d", "", "ServiceAccount", "d")),
			},
			want: []string{"two as d: d", "one as admin: team-b"},
		},
		"roles in a namespace of the release before the namespace": {
			leftovers: []inventory.Leftover{
				in("", leftover("one", 0, "admin", "", "Namespace", "team-b")),
				in("team-b", leftover("two", 1, "d", rbacGroup, "Role", "role")),
				in("", leftover("two", 1, "d", rbacGroup, "ClusterRole", "wide")),
			},
			want: []string{"two as d: role", "one as admin: team-b", "two as d: wide (identity)"},
		},
		// T-111: each account deletes what it applied.
		"accounts apart": {
			leftovers: []inventory.Leftover{
				leftover("db", 0, "web", "", "Secret", "new"), leftover("db", 0, "db-admin", "", "Secret", "old"),
			},
			want: []string{"db as db-admin: old", "db as web: new"},
		},
		"what led to a cluster apart": {
			leftovers: []inventory.Leftover{
				by(v1.KubeConfigSecret, leftover("db", 0, "d", "", "Secret", "a")),
				by(v1.KubeConfigConfigMap, leftover("db", 0, "d", "", "Secret", "b")),
				by(v1.KubeConfigSecret, leftover("db", 0, "d", "", "Secret", "c")),
			},
			want: []string{"db as d: b", "db as d: a c"},
		},
		"nothing": {},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, step := range Plan("team-a", tc.leftovers) {
				var names []string
				for _, entry := range step.Entries {
					names = append(names, entry.Name)
				}
				text := step.Record.Stage + " as " + step.Record.Target.ServiceAccountName + ": " + strings.Join(names, " ")
				if step.Identity {
					text += " (identity)"
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
		})
	}
}
