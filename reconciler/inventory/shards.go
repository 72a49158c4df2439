package inventory

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stageset/stageset/api/v1"
)

// ShardSize is how many entries a StageInventory holds; more would bring a stage of many objects near etcd's limit of
// 1.5 MiB an object.
const ShardSize = 2000

// maxName is the longest name of an object.
const maxName = 253

// Join puts the shards of one StageSet's inventories together. The order is that of Sort.
func Join(shards []v1.StageInventory) []Record {
	byID := map[ID]*Record{}
	for i := range shards {
		spec := &shards[i].Spec
		id := ID{Stage: spec.Stage, Target: spec.Target}
		record, known := byID[id]
		if !known {
			record = &Record{Stage: spec.Stage, Target: spec.Target, Entries: map[Key]v1.InventoryEntry{}}
			byID[id] = record
		}
		record.Position = spec.Position
		record.Prune = spec.Prune == nil || *spec.Prune
		for _, entry := range spec.Entries {
			record.Entries[EntryKey(entry)] = entry
		}
	}
	records := make([]Record, 0, len(byID))
	for _, record := range byID {
		records = append(records, *record)
	}
	Sort(records)
	return records
}

// Sort orders records by position, then stage, then account, then cluster and what led to it.
func Sort(records []Record) {
	slices.SortFunc(records, func(a, b Record) int {
		return cmp.Or(
			cmp.Compare(a.Position, b.Position),
			a.ID().Compare(b.ID()),
		)
	})
}

// Split is the inverse of Join for one record: the StageInventory objects that hold it, at least one, entries in stable
// order. Names are `<stageset>.<stage>.<hash of the target>-<shard>`. Entries stay in the shard that stored has them in:
// shards are written one after the other, and one that moved would be in none of them if the process died in between.
func Split(owner *v1.StageSet, record Record, stored ...v1.StageInventory) []v1.StageInventory {
	var shards []v1.StageInventory
	for number, keys := range distribute(record, stored) {
		shard := newShard(owner, record, number)
		for _, key := range keys {
			shard.Spec.Entries = append(shard.Spec.Entries, record.Entries[key])
		}
		shards = append(shards, shard)
	}
	return shards
}

// distribute is what each shard of a record holds.
func distribute(record Record, stored []v1.StageInventory) [][]Key {
	place := map[Key]int32{}
	for i := range stored {
		spec := &stored[i].Spec
		if (ID{Stage: spec.Stage, Target: spec.Target}) != record.ID() || int(spec.Shard) >= len(stored) {
			continue
		}
		for _, entry := range spec.Entries {
			place[EntryKey(entry)] = spec.Shard
		}
	}
	shards := make([][]Key, len(stored)+len(record.Entries)/ShardSize+1)
	var added []Key
	for _, key := range record.Keys() {
		if number, known := place[key]; known {
			shards[number] = append(shards[number], key)
		} else {
			added = append(added, key)
		}
	}
	used := 1
	for number := range shards {
		room := min(ShardSize-len(shards[number]), len(added))
		shards[number] = append(shards[number], added[:room]...)
		added = added[room:]
		slices.SortFunc(shards[number], Compare)
		if len(shards[number]) > 0 {
			used = number + 1
		}
	}
	return shards[:used]
}

func newShard(owner *v1.StageSet, record Record, number int) v1.StageInventory {
	prune := record.Prune
	return v1.StageInventory{
		TypeMeta: metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "StageInventory"},
		ObjectMeta: metav1.ObjectMeta{
			Name:       shardName(owner.Name, record.ID(), number),
			Namespace:  owner.Namespace,
			Labels:     map[string]string{v1.LabelName: v1.LabelValue(owner.Name), v1.LabelStage: record.Stage},
			Finalizers: []string{v1.InventoryFinalizer},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1.GroupVersion.String(), Kind: "StageSet", Name: owner.Name, UID: owner.UID,
			}},
		},
		Spec: v1.StageInventorySpec{
			StageSet: owner.Name, Stage: record.Stage, Position: record.Position, Shard: int32(number),
			Target: record.Target, Prune: &prune,
		},
	}
}

// shardName is unambiguous because a stage's name has no dots. A name that would be too long has its StageSet's part
// hashed.
func shardName(stageSet string, id ID, number int) string {
	target := id.Target.Cluster + "/" + id.Target.ServiceAccountName
	if led := id.Target.KubeConfig; led != (v1.InventoryKubeConfig{}) {
		target += "/" + led.Kind + "/" + led.Name + "/" + led.Key
	}
	sum := sha256.Sum256([]byte(target))
	suffix := fmt.Sprintf(".%s.%s-%d", id.Stage, hex.EncodeToString(sum[:])[:8], number)
	if len(stageSet)+len(suffix) > maxName {
		sum := sha256.Sum256([]byte(stageSet))
		return hex.EncodeToString(sum[:])[:32] + suffix
	}
	return stageSet + suffix
}
