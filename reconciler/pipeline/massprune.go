package pipeline

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/preflight"
)

const (
	// massPruneFrom is how many objects a stage must have in its inventory for a large part of them to count as a mass.
	massPruneFrom = 10
	// maxLeaving is how many objects a message names before it counts.
	maxLeaving = 5
)

// leaving is what a stage applied, or may have, and the release no longer renders.
type leaving struct {
	stage, path, revision string
	// rendered is how many objects the stage renders now, recorded how many it may have applied.
	rendered, recorded int
	gone               []inventory.Key
}

// refuseMassPrune refuses a release that would delete all that a stage has applied, or more than half of ten objects or
// more: it is what an empty or mistyped path looks like. What moves to another stage is not deleted, a stage that is taken
// out of spec is meant to go, and a stage that does not prune deletes nothing. An annotation that names the revision of
// the stage's artifact allows it, for that revision.
func refuseMassPrune(set *v1.StageSet, pinned Pinned, stages []preflight.Stage, records []inventory.Record) error {
	desired := map[inventory.Key]bool{}
	for _, stage := range stages {
		for _, rendered := range stage.Objects {
			desired[inventory.KeyOf(rendered.Desired)] = true
		}
	}
	var masses, refused []leaving
	for i, stage := range stages {
		spec := pinned.Stages[i].Stage
		next := leaving{stage: stage.Name, path: spec.Path, revision: pinned.Stages[i].Pin.Revision, rendered: len(stage.Objects)}
		next.compare(records, desired)
		if !spec.Prunes() || !next.isMass() {
			continue
		}
		masses = append(masses, next)
		if !names(set.Annotations[v1.AnnotationAllowMassPrune], next.revision) {
			refused = append(refused, next)
		}
	}
	if len(refused) == 0 {
		return nil
	}
	return pruneRefused(refused, masses)
}

// compare fills in what of the stage's records the release no longer renders. What was written ahead counts, although a
// process that died may not have come as far: it may exist. What has left with an earlier release, and is still being deleted,
// does not count, nor does what is never deleted.
func (l *leaving) compare(records []inventory.Record, desired map[inventory.Key]bool) {
	seen := map[inventory.Key]bool{}
	for _, record := range records {
		if record.Stage != l.stage {
			continue
		}
		for _, key := range record.Keys() {
			if entry := record.Entries[key]; seen[key] || entry.Left || entry.Keep {
				continue
			}
			seen[key] = true
			if !desired[key] {
				l.gone = append(l.gone, key)
			}
		}
	}
	l.recorded = len(seen)
}

func (l *leaving) isMass() bool {
	return len(l.gone) > 0 && (l.rendered == 0 || l.recorded >= massPruneFrom && 2*len(l.gone) > l.recorded)
}

// names says whether the annotation, one revision or several separated by commas, names the revision.
func names(annotation, revision string) bool {
	if annotation == revision {
		return true
	}
	listed := strings.Split(annotation, ",")
	return slices.ContainsFunc(listed, func(one string) bool { return strings.TrimSpace(one) == revision })
}

// pruneRefused says what would go, and how to allow it: masses are all stages that need it, also those that have it.
func pruneRefused(refused, masses []leaving) error {
	texts := make([]string, 0, len(refused))
	for _, stage := range refused {
		texts = append(texts, stage.String())
	}
	var revisions []string
	for _, stage := range masses {
		if !slices.Contains(revisions, stage.revision) {
			revisions = append(revisions, stage.revision)
		}
	}
	return failure.NewStalled(v1.ReasonPruneRefused,
		"%s. Nothing is applied or deleted: correct the path or the artifact; or, if the objects are to be deleted, "+
			"set the annotation %s: %q on the StageSet",
		strings.Join(texts, "; "), v1.AnnotationAllowMassPrune, strings.Join(revisions, ",")).InStage(refused[0].stage)
}

func (l *leaving) String() string {
	var named []string
	for _, key := range l.gone[:min(len(l.gone), maxLeaving)] {
		named = append(named, key.String())
	}
	renders := "renders nothing"
	if l.rendered > 0 {
		renders = fmt.Sprintf("renders only %d objects", l.rendered)
	}
	return fmt.Sprintf("stage %s %s at %s with path %q, so that %d of the %d objects in its inventory would be deleted: %s",
		l.stage, renders, l.revision, l.path, len(l.gone), l.recorded,
		strings.Join(failure.AndMore(named, len(l.gone)-maxLeaving), ", "))
}
