package release

import (
	"slices"
	"strings"

	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/health"
	"github.com/stageset/stageset/reconciler/inventory"
)

// awaitPlace holds the stage up until the objects that were deleted to be made anew are gone. A later look forgets it, so
// that they are tried again.
func (s *stage) awaitPlace(leaving []inventory.Key) {
	for _, key := range leaving {
		result := health.Result{Verdict: health.Progressing, Message: "is being deleted, to be made anew"}
		s.state.Health.Add(key, result)
		s.state.Barrier.Add(key, result)
	}
}

// Recreating are objects that were deleted to be made anew.
type Recreating struct {
	// First is one of them.
	First inventory.Key
	// Text names five of them and counts the others; empty if there are none.
	Text string
}

// Recreating is what was deleted to be made anew since it was last asked.
func (r *Run) Recreating() Recreating {
	deleted := r.recreating
	r.recreating = nil
	if len(deleted) == 0 {
		return Recreating{}
	}
	slices.SortFunc(deleted, inventory.Compare)
	names := make([]string, 0, len(deleted))
	for _, key := range deleted {
		names = append(names, key.String())
	}
	return Recreating{First: deleted[0], Text: list(names)}
}

// Kept names the objects that are not as they are rendered, because they cannot be changed and their stage keeps them; empty
// if there are none.
func (r *Run) Kept() string {
	var kept []string
	for _, stage := range r.stages {
		for _, object := range stage.cleared.Objects() {
			if object.Kept() {
				kept = append(kept, object.Key().String())
			}
		}
	}
	return list(kept)
}

// list names five and counts the others.
func list(names []string) string {
	return strings.Join(failure.AndMore(names[:min(len(names), maxDrifted)], len(names)-maxDrifted), ", ")
}
