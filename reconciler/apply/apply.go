// Package apply writes a stage: what changed, in waves, as the stage's account. It takes only what package preflight
// cleared, deletes only what preflight has found in the way of an object that has to be made anew, and never waits or
// decides what comes next.
package apply

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/health"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/ownership"
	"github.com/stageset/stageset/reconciler/preflight"
)

// Change is one object that was written.
type Change struct {
	Key inventory.Key
	// Entry is the object's inventory entry after the write.
	Entry v1.InventoryEntry
	// Health is the object's health in the API server's answer.
	Health health.Result
}

// ChangeSet is what an apply of a stage did, also when it ends in an error. Nothing in it is in a particular order.
type ChangeSet struct {
	// Changes are the written objects.
	Changes []Change
	// Settled are objects of which a dry-run that had to wait has shown that there is nothing to write.
	Settled []*preflight.Object
	// Deleted are the objects that were deleted to be made anew.
	Deleted []inventory.Key
	// Leaving are the objects whose place is still taken by those that were deleted; a later call makes them.
	Leaving []inventory.Key
}

// Stage writes the changed objects of a stage wave by wave, up to concurrency at once, and passes over those in done,
// which an earlier call wrote. It ends before the first wave that comes after a gate which comes after what it wrote:
// whether the gate is healthy is for the caller to say, and to call again. It ends after a wave with an object that cannot
// be made anew yet. Objects whose dry-run had to wait are dry-run before their wave's first write, and permissions that the
// release itself may have given are asked for before that. A wave that fails ends the apply with all of its errors as one
// *failure.Error; what was written is in the ChangeSet in any case.
func Stage(
	ctx context.Context, cleared preflight.Cleared, stage preflight.ClearedStage, options Options,
) (ChangeSet, error) {
	options.Concurrency = max(options.Concurrency, 1)
	writer := writer{cleared: cleared, stage: stage, options: options, set: &ChangeSet{}}
	pending := pendingWaves(stage, options.Done)
	for number, wave := range pending {
		if number > 0 && stage.Gated(pending[0][0].Wave(), wave[0].Wave()) {
			break
		}
		err := writer.writeWave(ctx, wave)
		if err != nil || len(writer.set.Leaving) > 0 {
			return *writer.set, err
		}
	}
	return *writer.set, nil
}

// Options say how a stage is written.
type Options struct {
	// Concurrency is how many requests run at once inside a wave; at least one.
	Concurrency int
	// Done are the objects that are already written in this run.
	Done map[inventory.Key]bool
	// Ahead is called with the objects of a wave whose dry-run had to wait, once that has shown that they may and have to be
	// written, and before the first of the wave is. Its error ends the apply. A stage with such objects needs it.
	Ahead func(ctx context.Context, objects []*preflight.Object) error
	// Step begins what is done for a wave, and returns what ends it.
	Step func(ctx context.Context, name string, about ...slog.Attr) (within context.Context, end func())
}

// pendingWaves are the changed objects that are not done, wave by wave.
func pendingWaves(stage preflight.ClearedStage, done map[inventory.Key]bool) [][]*preflight.Object {
	var waves [][]*preflight.Object
	for _, object := range stage.Objects() {
		if !object.Changed() || done[object.Key()] {
			continue
		}
		last := len(waves) - 1
		if last < 0 || waves[last][0].Wave() != object.Wave() {
			waves = append(waves, nil)
			last++
		}
		waves[last] = append(waves[last], object)
	}
	return waves
}

// writer writes the waves of one stage.
type writer struct {
	cleared preflight.Cleared
	stage   preflight.ClearedStage
	options Options

	mu  sync.Mutex
	set *ChangeSet
}

// writeWave dry-runs the deferred objects of a wave, and then writes all that have to be written.
func (w *writer) writeWave(ctx context.Context, wave []*preflight.Object) error {
	ctx, end := w.options.Step(ctx, "wave", slog.String("stage", w.stage.Name()), slog.Int("objects", len(wave)))
	defer end()
	if err := w.stage.Permit(ctx, wave[0].Wave()); err != nil {
		return err
	}
	if err := w.each(ctx, only(wave, (*preflight.Object).Outdated), w.update); err != nil {
		return err
	}
	err := w.each(ctx, only(wave, (*preflight.Object).Deferred), func(ctx context.Context, object *preflight.Object) error {
		return w.cleared.DryRun(ctx, w.stage, object)
	})
	if err != nil {
		return err
	}
	var changed []*preflight.Object
	for _, object := range wave {
		if object.Changed() {
			changed = append(changed, object)
			continue
		}
		w.set.Settled = append(w.set.Settled, object)
	}
	if waited := only(changed, (*preflight.Object).Deferred); len(waited) > 0 {
		if err := w.options.Ahead(ctx, waited); err != nil {
			return err
		}
	}
	return w.each(ctx, changed, w.write)
}

// only are the objects that something is true of.
func only(objects []*preflight.Object, is func(*preflight.Object) bool) []*preflight.Object {
	return slices.DeleteFunc(slices.Clone(objects), func(object *preflight.Object) bool { return !is(object) })
}

// write writes one object, once its place is free.
func (w *writer) write(ctx context.Context, object *preflight.Object) error {
	if object.Recreates() != "" {
		free, deleted, err := w.vacate(ctx, object)
		if err != nil {
			return err
		}
		w.note(object.Key(), free, deleted)
		if !free {
			return nil
		}
	}
	answer, err := w.apply(ctx, object)
	if err != nil {
		return err
	}
	change := w.changeOf(ctx, object, answer)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.set.Changes = append(w.set.Changes, change)
	return nil
}

// apply applies one object, after what others have left on it is taken over.
func (w *writer) apply(ctx context.Context, object *preflight.Object) (*unstructured.Unstructured, error) {
	applier, target := w.cleared.Applier(), w.stage.Target()
	if object.Inherits() {
		if err := applier.Inherit(ctx, target, object.Desired()); err != nil {
			return nil, err
		}
	}
	request := ownership.Request{New: object.LiveUID() == ""}
	if object.Recreates() == "" {
		request.UID = object.LiveUID()
	}
	return applier.Apply(ctx, target, object.Desired(), request)
}

// update makes it possible to dry-run an object.
func (w *writer) update(ctx context.Context, object *preflight.Object) error {
	return w.cleared.Applier().Update(ctx, w.stage.Target(), object.Desired())
}

// note notes what became of an object that has to make way.
func (w *writer) note(key inventory.Key, gone, deleted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if deleted {
		w.set.Deleted = append(w.set.Deleted, key)
	}
	if !gone {
		w.set.Leaving = append(w.set.Leaving, key)
	}
}

// each runs one request for each object, up to the concurrency at once. All that the API server refuses is one *failure.Error.
func (w *writer) each(
	ctx context.Context, objects []*preflight.Object, request func(context.Context, *preflight.Object) error,
) error {
	asking := preflight.NewAsking(ctx, w.options.Concurrency)
	for _, object := range objects {
		asking.Ask(w.stage, object, request)
	}
	problems, err := asking.Wait()
	if err != nil {
		return err
	}
	return preflight.Refused(ctx, problems)
}

func (w *writer) changeOf(ctx context.Context, object *preflight.Object, answer *unstructured.Unstructured) Change {
	live := w.stage.Live(ctx, answer)
	gvk := object.Desired().GroupVersionKind()
	key := object.Key()
	return Change{
		Key: key,
		Entry: v1.InventoryEntry{
			Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Namespace: key.Namespace, Name: key.Name,
			UID: live.UID, ResourceVersion: live.ResourceVersion, Generation: live.Generation, RenderedHash: object.Hash(),
			Keep: object.Keep(),
		},
		Health: live.Health,
	}
}
