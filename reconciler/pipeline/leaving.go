package pipeline

import (
	"slices"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/preflight"
)

// Prunes says whether a stage, by name, deletes what left it: what the spec says now counts; of a stage that is not in spec
// any more, what was recorded.
func Prunes(set *v1.StageSet, name string, recorded bool) bool {
	for _, stage := range set.Spec.Stages {
		if stage.Name == name {
			return stage.Prunes()
		}
	}
	return recorded
}

// left is what the release deletes after its last stage, as far as it has a stage with the account and target that applied
// it. What others applied is deleted as them, whom nothing here can ask.
func left(set *v1.StageSet, pinned Pinned, stages []preflight.Stage, records []inventory.Record) []preflight.Leaving {
	desired := map[inventory.Key]bool{}
	for _, stage := range stages {
		for _, object := range stage.Objects {
			desired[inventory.KeyOf(object.Desired)] = true
		}
	}
	targets := pinned.RecordIDs()
	var all []preflight.Leaving
	for _, record := range records {
		as := slices.IndexFunc(targets, func(id inventory.ID) bool { return id.Target == record.Target })
		if as < 0 || !Prunes(set, record.Stage, record.Prune) {
			continue
		}
		next := preflight.Leaving{Stage: record.Stage, Account: stages[as].Account, Target: stages[as].Target}
		for _, key := range record.Keys() {
			spared := record.ID().Place(key).Spared(set.Namespace)
			if entry := record.Entries[key]; !desired[key] && !entry.Keep && !spared {
				next.Entries = append(next.Entries, entry)
			}
		}
		if len(next.Entries) > 0 {
			all = append(all, next)
		}
	}
	return all
}
