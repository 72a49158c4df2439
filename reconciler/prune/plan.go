package prune

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/waves"
)

// Step is what is deleted together: entries of one stage, as one account.
type Step struct {
	Record inventory.ID
	// Identity is true for roles, their bindings and accounts: what the accounts of the StageSet itself may live from.
	Identity bool
	Entries  []v1.InventoryEntry
}

// Plan orders leftovers into steps: stages from the last to the first, and what gives the StageSet's accounts their rights
// after everything else, so that no step cuts the branch that the next one sits on. A step starts when the one before is
// done, failed or overdue; one of Identity only when all before it are done.
func Plan(leftovers []inventory.Leftover) []Step {
	ordered := slices.Clone(leftovers)
	slices.SortStableFunc(ordered, func(a, b inventory.Leftover) int {
		return cmp.Or(
			cmp.Compare(rank(a), rank(b)),
			cmp.Compare(b.Position, a.Position),
			cmp.Compare(a.Record.Stage, b.Record.Stage),
			cmp.Compare(a.Record.Target.ServiceAccountName, b.Record.Target.ServiceAccountName),
		)
	})
	var steps []Step
	for i, leftover := range ordered {
		last := len(steps) - 1
		if i == 0 || steps[last].Record != leftover.Record || rank(ordered[i-1]) != rank(leftover) {
			steps = append(steps, Step{Record: leftover.Record, Identity: rank(leftover) > 0})
			last++
		}
		steps[last].Entries = append(steps[last].Entries, leftover.Entry)
	}
	return steps
}

// rank puts identity after everything else, accounts after the roles and bindings, and the account that a step is deleted
// as last of all: a token dies with its account.
func rank(leftover inventory.Leftover) int {
	switch (schema.GroupKind{Group: leftover.Entry.Group, Kind: leftover.Entry.Kind}) {
	case schema.GroupKind{Kind: "ServiceAccount"}:
		if leftover.Entry.Name == leftover.Record.Target.ServiceAccountName {
			return 4
		}
		return 3
	case schema.GroupKind{Group: rbacGroup, Kind: "RoleBinding"},
		schema.GroupKind{Group: rbacGroup, Kind: "ClusterRoleBinding"}:
		return 2
	case schema.GroupKind{Group: rbacGroup, Kind: "Role"}, schema.GroupKind{Group: rbacGroup, Kind: "ClusterRole"}:
		return 1
	default:
		return 0
	}
}

const rbacGroup = "rbac.authorization.k8s.io"

// waves are the step's entries from the last wave to the first.
func (s Step) waves() [][]v1.InventoryEntry {
	byWave := map[int][]v1.InventoryEntry{}
	var numbers []int
	for _, entry := range s.Entries {
		number := waves.OfKind(schema.GroupKind{Group: entry.Group, Kind: entry.Kind})
		if byWave[number] == nil {
			numbers = append(numbers, number)
		}
		byWave[number] = append(byWave[number], entry)
	}
	slices.SortFunc(numbers, func(a, b int) int { return b - a })
	ordered := make([][]v1.InventoryEntry, 0, len(numbers))
	for _, number := range numbers {
		ordered = append(ordered, byWave[number])
	}
	return ordered
}
