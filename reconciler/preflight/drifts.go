package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/drift"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/ownership"
)

// Drifts is what others did to applied objects.
type Drifts struct {
	// Objects is how many objects it is about.
	Objects int
	// First is one of them.
	First inventory.Key
	// Text names five of them, with fields and field managers where they are known, and counts the others. It has no values.
	Text string
}

// And is what both are about.
func (d Drifts) And(other Drifts) Drifts {
	switch {
	case d.Objects == 0:
		return other
	case other.Objects == 0:
		return d
	}
	return Drifts{Objects: d.Objects + other.Objects, First: d.First, Text: d.Text + "; " + other.Text}
}

// maxDrifted is how many objects a text names before it counts.
const maxDrifted = 5

// DriftsOf is what others did to drifted objects.
func DriftsOf(objects []*Object) Drifts {
	found := make([]drift.Found, 0, len(objects))
	for _, object := range objects {
		found = append(found, *object.found)
	}
	return summarize(found)
}

func summarize(found []drift.Found) Drifts {
	if len(found) == 0 {
		return Drifts{}
	}
	slices.SortFunc(found, func(a, b drift.Found) int { return inventory.Compare(a.Key, b.Key) })
	var parts []string
	for _, one := range found[:min(len(found), maxDrifted)] {
		parts = append(parts, one.String())
	}
	if more := len(found) - maxDrifted; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return Drifts{Objects: len(found), First: found[0].Key, Text: strings.Join(parts, "; ")}
}

// Detect finds out what others did to objects of which only the inventory entries are at hand. What they changed is not
// known then, nor whether it matters.
func Detect(ctx context.Context, target drift.Reader, owner ownership.Owner, entries []v1.InventoryEntry) (Drifts, error) {
	wanted := make([]drift.Wanted, 0, len(entries))
	for _, entry := range entries {
		wanted = append(wanted, drift.Wanted{InventoryEntry: entry})
	}
	snapshot, err := drift.Observe(ctx, target, owner, wanted)
	if err != nil {
		return Drifts{}, err
	}
	var found []drift.Found
	for _, entry := range entries {
		key := inventory.EntryKey(entry)
		var live *drift.Live
		if seen, exists := snapshot[key]; exists {
			live = &seen
		}
		if state := drift.Touched(entry, live); state != drift.Unchanged {
			found = append(found, drift.Found{Key: key, State: state})
		}
	}
	return summarize(found), nil
}
