package release

import (
	"cmp"
	"context"
	"log/slog"
	"slices"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/apply"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/inventory/store"
	"github.com/stageset/stageset/reconciler/preflight"
)

// write writes what remains of a stage.
func (r *Run) write(ctx context.Context, book *store.Book, stage *stage) error {
	record := r.header(book.Record(stage.Record), stage)
	known := slices.DeleteFunc(slices.Clone(stage.cleared.Objects()), (*preflight.Object).Deferred)
	return r.apply(ctx, book, stage, record.Ahead(r.entriesOf(known)), stage.written)
}

// apply writes the changed objects of a stage that are not in done. The inventory record is saved before, with everything that
// may come to exist, and after, with what the API server answered; also when the apply fails half-way. What had to wait is
// recorded only when it is known that the account may write it: whoever has an object in an older inventory keeps others from
// making it.
func (r *Run) apply(
	ctx context.Context, book *store.Book, stage *stage, record inventory.Record, done map[inventory.Key]bool,
) error {
	ctx, end := r.step(ctx, "apply", slog.String("stage", stage.state.Name))
	defer end()
	if err := r.options.BeforeWrite(ctx); err != nil {
		return err
	}
	stage.expectAnew(record, done)
	if err := book.Save(ctx, record); err != nil {
		return err
	}
	set, applyErr := apply.Stage(ctx, r.cleared, stage.cleared, apply.Options{
		Concurrency: r.options.Concurrency, Done: done, Step: r.step,
		Ahead: func(ctx context.Context, objects []*preflight.Object) error {
			record = record.Ahead(r.entriesOf(objects))
			stage.expectAnew(record, done)
			return book.Save(ctx, record)
		},
	})
	for _, change := range set.Changes {
		stage.written[change.Key] = true
		stage.results[change.Key] = change.Health
		r.entries[change.Key] = change.Entry
		record.Entries[change.Key] = change.Entry
	}
	for _, object := range set.Settled {
		entry := r.entries[object.Key()]
		entry.UID = cmp.Or(entry.UID, object.LiveUID())
		r.entries[object.Key()], stage.results[object.Key()] = entry, object.Health()
		record.Entries[object.Key()] = entry
	}
	r.note(stage, set)
	r.recreating = append(r.recreating, set.Deleted...)
	stage.judge(r.options.Clock.Now())
	stage.awaitPlace(set.Leaving)
	if err := book.Save(ctx, record); err != nil {
		return err
	}
	return applyErr
}

// expectAnew takes out of a record what only the live objects have that may be deleted to be made anew, among them those
// whose dry-run has to wait: the UID of what takes their place is known only when it exists, and until it is recorded, the
// old one would say that nothing of ours is there.
func (s *stage) expectAnew(record inventory.Record, done map[inventory.Key]bool) {
	for _, object := range s.cleared.Objects() {
		key := object.Key()
		entry, recorded := record.Entries[key]
		if recorded && object.Changed() && !done[key] && (object.Recreates() != "" || object.Deferred()) {
			entry.UID, entry.ResourceVersion, entry.Generation = "", "", 0
			record.Entries[key] = entry
		}
	}
}

// header fills in what a record says about its stage.
func (r *Run) header(record inventory.Record, of *stage) inventory.Record {
	record = record.Clone()
	record.Prune = of.Prune
	for position, stage := range r.stages {
		if stage == of {
			record.Position = int32(position)
		}
	}
	return record
}

func (r *Run) entriesOf(objects []*preflight.Object) []v1.InventoryEntry {
	entries := make([]v1.InventoryEntry, 0, len(objects))
	for _, object := range objects {
		entries = append(entries, r.entries[object.Key()])
	}
	return entries
}

// Desired is the set of keys of all objects of the release.
func (r *Run) Desired() map[inventory.Key]bool {
	desired := make(map[inventory.Key]bool, len(r.entries))
	for key := range r.entries {
		desired[key] = true
	}
	return desired
}

// Settle brings the inventories to what is: each stage's own objects, and of everything else what is in unseen, because
// it was not yet seen gone. Records that hold nothing any more are removed, after the others are saved: an object whose
// stage has changed its account is recorded twice rather than not at all. What is already stored costs no request.
func (r *Run) Settle(ctx context.Context, book *store.Book, unseen map[inventory.Place]bool) error {
	current := map[inventory.ID]bool{}
	owner := map[inventory.Key]inventory.ID{}
	for _, stage := range r.stages {
		current[stage.Record] = true
		for _, object := range stage.cleared.Objects() {
			owner[object.Key()] = stage.Record
		}
	}
	for _, stage := range r.stages {
		record := inventory.Shrink([]inventory.Record{book.Record(stage.Record)}, owner, unseen)[0]
		record = r.header(record, stage).Ahead(nil)
		for _, entry := range r.entriesOf(stage.cleared.Objects()) {
			record.Entries[inventory.EntryKey(entry)] = entry
		}
		if err := saveOrDrop(ctx, book, record); err != nil {
			return err
		}
	}
	for _, record := range inventory.Shrink(book.Records(), owner, unseen) {
		if current[record.ID()] {
			continue
		}
		if err := saveOrDrop(ctx, book, record); err != nil {
			return err
		}
	}
	return nil
}

// saveOrDrop saves a record, or removes it when it holds nothing.
func saveOrDrop(ctx context.Context, book *store.Book, record inventory.Record) error {
	if len(record.Entries) == 0 {
		return book.Drop(ctx, record.ID())
	}
	return book.Save(ctx, record)
}
