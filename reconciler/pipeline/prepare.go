package pipeline

import (
	"context"
	"iter"
	"log/slog"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/build"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/ownership"
	"github.com/stageset/stageset/reconciler/preflight"
)

// Memory is what a pass has of the process's memory: what is known of its StageSet from earlier passes, and room.
type Memory struct {
	// Records are the StageSet's inventories.
	Records []inventory.Record
	// Loops are what drifts again and again.
	Loops *Loops
	// Room asks for room for rendered objects of a size in bytes as JSON. It never waits: false says that other passes have
	// what there is.
	Room func(bytes int64) bool
}

// roomPause is when a pass is made again that found no room.
const roomPause = 2 * time.Second

// Loops remembers what drifts again and again.
type Loops = preflight.Loops

// Prepare fetches and builds all stages, has every object reviewed, and runs the preflight over all of them.
func (p *Pipeline) Prepare(
	ctx context.Context, set *v1.StageSet, pinned Pinned, review Review, memory Memory,
) (preflight.Cleared, error) {
	in, err := p.compose(ctx, set, pinned, review, memory.Room)
	if err != nil {
		return preflight.Cleared{}, err
	}
	if err := refuseMassPrune(set, pinned, in.Stages, memory.Records); err != nil {
		return preflight.Cleared{}, err
	}
	in.Recorded, in.Loops = pinned.Recorded(memory.Records), memory.Loops
	in.Leaving = left(set, pinned, in.Stages, memory.Records)
	repeat(set, in.Stages, in.Recorded)
	return p.check(ctx, in)
}

// check runs the preflight.
func (p *Pipeline) check(ctx context.Context, in preflight.Input) (preflight.Cleared, error) {
	ctx, end := p.step(ctx, "preflight")
	defer end()
	return preflight.Check(ctx, in)
}

// compose fetches and builds all stages, and has every object reviewed: what the preflight is about.
func (p *Pipeline) compose(
	ctx context.Context, set *v1.StageSet, pinned Pinned, review Review, room func(bytes int64) bool,
) (preflight.Input, error) {
	built, err := p.build(ctx, set, pinned, room)
	if err != nil {
		return preflight.Input{}, err
	}
	if err := build.Duplicates(built); err != nil {
		return preflight.Input{}, err
	}
	stages, err := p.stamp(set, pinned, built)
	if err != nil {
		return preflight.Input{}, err
	}
	if err := p.review(ctx, pinned, stages, review); err != nil {
		return preflight.Input{}, err
	}
	return preflight.Input{
		Applier: p.applier(set, pinned), Stages: stages, Size: size(built), Concurrency: p.Concurrency,
	}, nil
}

// applier applies for a StageSet.
func (p *Pipeline) applier(set *v1.StageSet, pinned Pinned) ownership.Applier {
	applier := p.Applier
	applier.Cluster = pinned.Destination.Cluster()
	applier.Owner, applier.Age = Owner(set), inventory.Age{Created: set.CreationTimestamp.Time, UID: set.UID}
	return applier
}

// rendered are the objects of a stage with their hashes.
func rendered(stage preflight.Stage) iter.Seq2[*unstructured.Unstructured, string] {
	return func(yield func(*unstructured.Unstructured, string) bool) {
		for _, object := range stage.Objects {
			if !yield(object.Desired, object.Hash) {
				return
			}
		}
	}
}

// RepeatedStage is the stage that an annotation asks to be applied again, with the annotation's value; empty if none does, or
// if it was done.
func RepeatedStage(set *v1.StageSet) (stage, asked string) {
	asked = set.Annotations[v1.AnnotationReconcileStage]
	if asked == set.Status.LastHandledReconcileStage {
		return "", ""
	}
	stage, _, _ = strings.Cut(asked, "@")
	return stage, asked
}

// repeat forgets what was applied of the objects of a stage that is asked to be applied again, so that all of it is.
func repeat(set *v1.StageSet, stages []preflight.Stage, recorded map[inventory.Key]v1.InventoryEntry) {
	name, _ := RepeatedStage(set)
	for _, stage := range stages {
		if stage.Name != name {
			continue
		}
		for _, object := range stage.Objects {
			key := inventory.KeyOf(object.Desired)
			if entry, known := recorded[key]; known {
				entry.RenderedHash = ""
				recorded[key] = entry
			}
		}
	}
}

// review has every object reviewed.
func (p *Pipeline) review(ctx context.Context, pinned Pinned, stages []preflight.Stage, review Review) error {
	ctx, end := p.step(ctx, "policies")
	defer end()
	for i, stage := range stages {
		review.Manifests(ctx, stage.Name, pinned.Stages[i].Pin, pinned.Stages[i].Target.Facts(), rendered(stage))
	}
	return review.Err()
}

// size is the size of all rendered objects.
func size(built []build.StageManifests) int64 {
	var total int64
	for _, stage := range built {
		total += stage.Size()
	}
	return total
}

// Forget ends whatever a StageSet that is gone waits for.
func (p *Pipeline) Forget(stageSet types.NamespacedName) { p.Fetcher.Forget(stageSet) }

// Owner is the StageSet as the owner of what it applies.
func Owner(set *v1.StageSet) ownership.Owner {
	return ownership.Owner{Namespace: set.Namespace, Name: set.Name}
}

// build renders all stages and sets their namespaces, and reports the problems of all of them. What all stages render
// together is bounded as a single one is: a pass has all of it in memory, and a run that waits keeps it.
func (p *Pipeline) build(
	ctx context.Context, set *v1.StageSet, pinned Pinned, room func(bytes int64) bool,
) ([]build.StageManifests, error) {
	ctx, end := p.step(ctx, "build")
	defer end()
	built := make([]build.StageManifests, len(pinned.Stages))
	var (
		problems []error
		size     int64
	)
	for i := range pinned.Stages {
		stage := &pinned.Stages[i]
		manifests, err := p.render(ctx, set, stage)
		if err != nil {
			kind := failure.From(err).Kind
			if kind != failure.Waiting || len(problems) == 0 {
				problems = append(problems, inStage(err, stage))
			}
			if kind == failure.Stalled {
				continue
			}
			break // to wait for the rest as well would be to find out again and again what is known by now
		}
		if size += manifests.Size(); size > build.MaxObjects {
			return nil, failure.NewStalled(v1.ReasonBuildFailed, "the stages up to %s have more than %d MiB of objects: "+
				"split them between StageSets", stage.Stage.Name, build.MaxObjects>>20).InStage(stage.Stage.Name)
		}
		if !room(manifests.Size()) {
			return nil, failure.NewWaiting(v1.ReasonProgressing, roomPause,
				"what stage %s renders finds no room beside the releases that are being applied", stage.Stage.Name)
		}
		built[i] = build.StageManifests{Stage: stage.Stage.Name, Manifests: manifests}
	}
	if err := failure.Join(problems...); err != nil {
		return nil, err
	}
	return built, p.place(ctx, set, pinned, built)
}

// render builds a stage. What was built before needs no artifact. The source is part of the artifact's name: a digest alone
// may be told by the status of a source whose owner may not read what it is the digest of.
func (p *Pipeline) render(ctx context.Context, set *v1.StageSet, stage *PinnedStage) (build.Manifests, error) {
	ctx, end := p.step(ctx, "render", slog.String("stage", stage.Stage.Name), slog.String("digest", stage.Pin.Digest))
	defer end()
	built := false
	fetch := func(ctx context.Context) (build.Artifact, error) {
		built = true
		return p.Fetcher.Fetch(ctx, types.NamespacedName{Namespace: set.Namespace, Name: set.Name}, stage.Pin)
	}
	id := string(stage.Pin.UID) + "/" + stage.Pin.Digest
	options := build.OptionsOf(stage.Stage, stage.Variables)
	options.Namespace = set.Namespace
	manifests, err := p.Builds.Build(ctx, id, fetch, options)
	if ignored := manifests.Ignored(); built && len(ignored) > 0 {
		const shown = 20
		logr.FromContextOrDiscard(ctx).Info("files in a directory of manifests do not end as manifests do, and are not rendered",
			"stage", stage.Stage.Name, "revision", stage.Pin.Revision, "count", len(ignored),
			"files", ignored[:min(len(ignored), shown)])
	}
	return manifests, err
}

func (p *Pipeline) place(ctx context.Context, set *v1.StageSet, pinned Pinned, built []build.StageManifests) error {
	manifests := make([]build.Manifests, 0, len(built))
	for _, stage := range built {
		manifests = append(manifests, stage.Manifests)
	}
	rendered := build.RenderedScopes(manifests...)
	var problems []error
	for i := range built {
		stage := &pinned.Stages[i]
		var unreachable error
		scopes := build.FirstKnown(rendered, targetScopes(ctx, stage, &unreachable))
		placement := build.Placement{TargetNamespace: stage.Stage.TargetNamespace, DefaultNamespace: set.Namespace}
		placed, err := build.Place(built[i].Manifests, scopes, placement)
		if unreachable != nil {
			err = unreachable
		}
		if err != nil {
			problems = append(problems, inStage(err, stage))
			continue
		}
		built[i].Manifests = placed
	}
	return failure.Join(problems...)
}

// targetScopes asks the target for the scope of kinds that the release does not define itself. The first error that says
// that the target cannot be asked is kept in failed: it is no statement about the kind.
func targetScopes(ctx context.Context, stage *PinnedStage, failed *error) build.ScopeFunc {
	return func(kind schema.GroupKind) (namespaced, known bool) {
		namespaced, known, err := stage.Target.Scope(ctx, kind)
		if err != nil && *failed == nil {
			*failed = failure.NewTransient(v1.ReasonTargetUnreachable, "find out whether %s is namespaced: %w", kind, err)
		}
		return namespaced, known
	}
}

// stamp makes what the preflight takes: objects that name their owner, and their hashes.
func (p *Pipeline) stamp(set *v1.StageSet, pinned Pinned, built []build.StageManifests) ([]preflight.Stage, error) {
	stages := make([]preflight.Stage, 0, len(built))
	for i, stage := range built {
		out := preflight.Stage{
			Name:      stage.Stage,
			Account:   pinned.Stages[i].Target.Account(),
			Target:    pinned.Stages[i].Target,
			Ready:     readyChecks(set, pinned.Stages[i].Stage),
			Conflicts: preflight.ConflictsOf(pinned.Stages[i].Stage),
			Prunes:    pinned.Stages[i].Stage.Prunes(),
		}
		for _, object := range stage.Objects() {
			desired := Owner(set).Stamp(object.Unstructured, stage.Stage)
			hash, err := p.Hasher.Hash(desired)
			if err != nil {
				return nil, failure.NewStalled(v1.ReasonBuildFailed, "%s: %w", object.Origin, err)
			}
			out.Objects = append(out.Objects, preflight.Rendered{Desired: desired, Origin: object.Origin, Hash: hash})
		}
		stages = append(stages, out)
	}
	return stages, nil
}
