package preflight

import (
	"slices"
	"strings"

	"github.com/stageset/stageset/reconciler/drift"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/inventory"
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
	text := strings.Join(failure.AndMore(parts, len(found)-maxDrifted), "; ")
	return Drifts{Objects: len(found), First: found[0].Key, Text: text}
}
