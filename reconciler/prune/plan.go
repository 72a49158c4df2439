package prune

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/inventory"
)

// Step is what is deleted together: entries of one stage, as one account.
type Step struct {
	Record inventory.ID
	// Identity is true for what the accounts of the StageSet itself may live from: they, and roles and bindings.
	Identity bool
	Entries  []v1.InventoryEntry
}

// Plan orders leftovers of a StageSet in the namespace home into steps: stages from the last to the first, and what may give
// the StageSet's accounts their rights after everything else, so that no step cuts the branch that the next one sits on. A
// step starts when the one before is done, failed or overdue; one of Identity only when all before it are done.
func Plan(home string, leftovers []inventory.Leftover) []Step {
	ordered := slices.Clone(leftovers)
	ranks := ranksOf(home, leftovers)
	slices.SortStableFunc(ordered, func(a, b inventory.Leftover) int {
		return cmp.Or(
			cmp.Compare(ranks.of(a).late, ranks.of(b).late),
			cmp.Compare(b.Position, a.Position),
			cmp.Compare(ranks.of(a).kind, ranks.of(b).kind),
			a.Record.Compare(b.Record),
		)
	})
	var steps []Step
	for i, leftover := range ordered {
		last := len(steps) - 1
		rank := ranks.of(leftover)
		if i == 0 || steps[last].Record != leftover.Record || ranks.of(ordered[i-1]) != rank {
			steps = append(steps, Step{Record: leftover.Record, Identity: rank.late > 0})
			last++
		}
		steps[last].Entries = append(steps[last].Entries, leftover.Entry)
	}
	return steps
}

// rank is a place in the order of deletion: what is late comes after all stages of what is less so; kind is the order within
// a stage.
type rank struct{ late, kind int }

// ranks are the ranks of the leftovers of one StageSet.
type ranks struct {
	home string
	// accounts delete something, and namespaces are themselves deleted.
	accounts, namespaces map[string]bool
}

func ranksOf(home string, leftovers []inventory.Leftover) ranks {
	found := ranks{home: home, accounts: map[string]bool{}, namespaces: map[string]bool{}}
	for _, leftover := range leftovers {
		found.accounts[leftover.Record.Target.ServiceAccountName] = true
		if leftover.Entry.Group == "" && leftover.Entry.Kind == "Namespace" {
			found.namespaces[leftover.Entry.Name] = true
		}
	}
	return found
}

// of puts roles and bindings after everything else, whoever they are for: an inventory does not say. Those in a namespace of
// the StageSet keep the place of their stage: later, the namespace would be gone, and what they gave with it. Then come the
// accounts of the StageSet itself, and last of all the account that a step is deleted as: a token dies with its account.
// Other accounts are objects like any other.
func (r ranks) of(leftover inventory.Leftover) rank {
	entry := leftover.Entry
	switch (schema.GroupKind{Group: entry.Group, Kind: entry.Kind}) {
	case schema.GroupKind{Kind: "ServiceAccount"}:
		switch {
		case entry.Namespace != r.home || !r.accounts[entry.Name]:
			return rank{}
		case entry.Name == leftover.Record.Target.ServiceAccountName:
			return rank{late: 3}
		}
		return rank{late: 2}
	case schema.GroupKind{Group: rbacGroup, Kind: "Role"}, schema.GroupKind{Group: rbacGroup, Kind: "ClusterRole"}:
		if r.namespaces[entry.Namespace] {
			return rank{}
		}
		return rank{late: 1}
	case schema.GroupKind{Group: rbacGroup, Kind: "RoleBinding"},
		schema.GroupKind{Group: rbacGroup, Kind: "ClusterRoleBinding"}:
		if r.namespaces[entry.Namespace] {
			return rank{}
		}
		return rank{late: 1, kind: 1}
	}
	return rank{}
}

const rbacGroup = "rbac.authorization.k8s.io"
