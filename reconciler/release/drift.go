package release

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stageset/stageset/reconciler/apply"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/preflight"
)

// Corrected is what others did to objects that a run has since applied again.
type Corrected struct {
	// Objects is how many.
	Objects int
	// First is one of them.
	First inventory.Key
	// Text names five of them, with fields and field managers, and counts the others. It has no values.
	Text string
}

// maxDrifted is how many objects a text names before it counts.
const maxDrifted = 5

// Corrected is what was corrected since it was last asked.
func (r *Run) Corrected() Corrected {
	objects := r.corrected
	r.corrected = nil
	if len(objects) == 0 {
		return Corrected{}
	}
	slices.SortFunc(objects, func(a, b *preflight.Object) int { return inventory.Compare(a.Key(), b.Key()) })
	var parts []string
	for _, object := range objects[:min(len(objects), maxDrifted)] {
		parts = append(parts, object.Drift().String())
	}
	if more := len(objects) - maxDrifted; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return Corrected{Objects: len(objects), First: objects[0].Key(), Text: strings.Join(parts, "; ")}
}

// correct notes which of the written objects had drifted.
func (r *Run) correct(stage *stage, set apply.ChangeSet) {
	written := make(map[inventory.Key]bool, len(set.Changes))
	for _, change := range set.Changes {
		written[change.Key] = true
	}
	for _, object := range stage.cleared.Objects() {
		if object.Drift() != nil && written[object.Key()] {
			r.corrected = append(r.corrected, object)
		}
	}
}
