package release

import (
	"context"
	"maps"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/apply"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/inventory/store"
	"github.com/stageset/stageset/reconciler/preflight"
)

// maxDrifted is how many objects a text names before it counts.
const maxDrifted = 5

// Corrected is what others did to objects that the run has applied again since it was last asked.
func (r *Run) Corrected() preflight.Drifts {
	corrected := r.corrected
	r.corrected = nil
	return preflight.DriftsOf(corrected)
}

// Correct writes the drifted objects of all stages and no other, and decides nothing.
func (r *Run) Correct(ctx context.Context, book *store.Book) error {
	for _, stage := range r.stages {
		for stage.state.Drifted > 0 && stage.state.Barrier.Healthy() {
			if err := r.correct(ctx, book, stage); err != nil {
				return err
			}
		}
	}
	return nil
}

// correct writes the drifted objects of a stage and no other.
func (r *Run) correct(ctx context.Context, book *store.Book, stage *stage) error {
	done := maps.Clone(stage.written)
	var entries []v1.InventoryEntry
	for _, object := range stage.cleared.Objects() {
		if object.Drift() == nil {
			done[object.Key()] = true
			continue
		}
		entries = append(entries, r.entries[object.Key()])
	}
	return r.apply(ctx, book, stage, book.Record(stage.Record).Ahead(entries), done)
}

// note takes over what was written: which of it had drifted, and what remains.
func (r *Run) note(stage *stage, set apply.ChangeSet) {
	written, touched := map[inventory.Key]bool{}, map[inventory.Key]bool{}
	for _, change := range set.Changes {
		written[change.Key], touched[change.Key] = true, true
	}
	for _, key := range set.Deleted {
		touched[key] = true
	}
	stage.state.Remaining = 0
	for _, object := range stage.cleared.Objects() {
		r.begun = r.begun || touched[object.Key()] && object.Drift() == nil
		if written[object.Key()] && object.Drift() != nil {
			r.corrected = append(r.corrected, object)
			r.cleared.Corrected(object)
		}
		if object.Changed() && !stage.written[object.Key()] {
			stage.state.Remaining++
		}
	}
	r.countDrift()
}

// Begun is true when the run, or an earlier pass, has written something that was not applied before.
func (r *Run) Begun() bool { return r.begun }

// countDrift counts what may be corrected in any stage. Once the release has begun to write, it is left to the stages: they
// come to it when what is before them is healthy.
func (r *Run) countDrift() {
	for _, stage := range r.stages {
		stage.state.Drifted = 0
		for _, object := range stage.cleared.Objects() {
			if !r.begun && object.Drift() != nil && object.Changed() && !stage.written[object.Key()] {
				stage.state.Drifted++
			}
		}
	}
}
