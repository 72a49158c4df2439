package inventory

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stageset/stageset/api/v1"
)

// Record is what one stage has applied to one target, all shards together. A stage whose account changed has a record for
// each account, so that what the old account applied is deleted as the old account.
type Record struct {
	// Stage is the stage's name.
	Stage string
	// Position is the stage's index in spec.stages when it was last applied.
	Position int32
	// Prune is the stage's prune when it was last applied.
	Prune bool
	// Target is where and as whom the entries were applied.
	Target v1.InventoryTarget
	// Entries are the applied objects.
	Entries map[Key]v1.InventoryEntry
}

// ID tells records of one StageSet apart.
type ID struct {
	Stage  string
	Target v1.InventoryTarget
}

// Compare orders by stage, then account, then cluster and what led to it; it is 0 only for the same ID.
func (id ID) Compare(other ID) int {
	a, b := id.Target, other.Target
	return cmp.Or(
		cmp.Compare(id.Stage, other.Stage),
		cmp.Compare(a.ServiceAccountName, b.ServiceAccountName),
		cmp.Compare(a.Cluster, b.Cluster),
		cmp.Compare(a.KubeConfig.Kind, b.KubeConfig.Kind),
		cmp.Compare(a.KubeConfig.Name, b.KubeConfig.Name),
		cmp.Compare(a.KubeConfig.Key, b.KubeConfig.Key),
	)
}

// Place is an object where the record has it.
func (id ID) Place(key Key) Place { return Place{Cluster: id.Target.Cluster, Key: key} }

// ID is the record's identity within its StageSet.
func (r Record) ID() ID { return ID{Stage: r.Stage, Target: r.Target} }

// Keys are the record's keys in stable order.
func (r Record) Keys() []Key {
	return slices.SortedFunc(maps.Keys(r.Entries), Compare)
}

// Clone is a copy that shares nothing with r.
func (r Record) Clone() Record {
	r.Entries = maps.Clone(r.Entries)
	return r
}

// Ahead is the record as it is written before the first write of a stage: what was recorded, and an entry for each
// desired object that was not. A recorded entry stays as it is, hash included, so that a pass after a crash sees that the
// object still has to be written; unless it is of another object than the one that is going to be written, because the
// recorded one is gone. A desired entry has the UID that the preflight saw, or none. What had left the release is back.
func (r Record) Ahead(desired []v1.InventoryEntry) Record {
	ahead := r.Clone()
	if ahead.Entries == nil {
		ahead.Entries = map[Key]v1.InventoryEntry{}
	}
	for _, entry := range desired {
		key := EntryKey(entry)
		recorded, known := ahead.Entries[key]
		if known && (recorded.UID == "" || recorded.UID == entry.UID) {
			entry = recorded
			entry.Left = false
		}
		ahead.Entries[key] = entry
	}
	return ahead
}

// Leftover is an entry of a record that no stage of the current release renders any more.
type Leftover struct {
	Record ID
	// Position is the record's position; leftovers are pruned from the highest to the lowest.
	Position int32
	// Prune is false when the stage asked to keep what leaves it.
	Prune bool
	Entry v1.InventoryEntry
}

// Leftovers are the entries of all records that desired, the objects of a release on a cluster, does not hold: what left the
// release. An object that moved to another stage is desired, and therefore no leftover; one that the release has on another
// cluster now is one, unless it has the same UID there: then it is one cluster by two names. The order is by position from
// the last stage to the first, then by key.
func Leftovers(records []Record, desired map[Key]bool, cluster string) []Leftover {
	var left []Leftover
	kept := uidsOn(cluster, records, desired)
	for _, record := range records {
		for _, key := range record.Keys() {
			here := desired[key] && record.Target.Cluster == cluster
			if !here && !kept[record.Entries[key].UID] {
				left = append(left, Leftover{
					Record: record.ID(), Position: record.Position, Prune: record.Prune, Entry: record.Entries[key],
				})
			}
		}
	}
	slices.SortStableFunc(left, func(a, b Leftover) int { return cmp.Compare(b.Position, a.Position) })
	return left
}

// uidsOn are the UIDs of desired objects that are recorded on a cluster.
func uidsOn(cluster string, records []Record, desired map[Key]bool) map[types.UID]bool {
	uids := map[types.UID]bool{}
	for _, record := range records {
		for key, entry := range record.Entries {
			if record.Target.Cluster == cluster && desired[key] && entry.UID != "" {
				uids[entry.UID] = true
			}
		}
	}
	return uids
}

// Shrink is records without what is no longer theirs: an entry stays if its record is the current one of the stage that
// renders it, or if it is in unseen (not yet seen gone). What stays because it is unseen has left the release, so that a
// later one does not take it for something that leaves anew, and loses its renderedHash. owner maps each desired key to the
// record that applies it.
func Shrink(records []Record, owner map[Key]ID, unseen map[Place]bool) []Record {
	shrunk := make([]Record, 0, len(records))
	for _, record := range records {
		kept := record.Clone()
		for key, entry := range record.Entries {
			id, desired := owner[key]
			desired = desired && id.Target.Cluster == record.Target.Cluster
			switch {
			case desired && id == record.ID():
			case !desired && unseen[record.ID().Place(key)]:
				entry.RenderedHash, entry.Left = "", true
				kept.Entries[key] = entry
			default:
				delete(kept.Entries, key)
			}
		}
		shrunk = append(shrunk, kept)
	}
	return shrunk
}
