package inventory

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stageset/stageset/api/v1"
)

func entry(name string) v1.InventoryEntry {
	return v1.InventoryEntry{Version: "v1", Kind: "ConfigMap", Namespace: "team-a", Name: name}
}

func confirmed(name string, uid types.UID) v1.InventoryEntry {
	confirmed := entry(name)
	confirmed.UID, confirmed.RenderedHash = uid, "hash-of-"+name
	return confirmed
}

func record(stage string, position int32, entries ...v1.InventoryEntry) Record {
	record := Record{Stage: stage, Position: position, Prune: true, Entries: map[Key]v1.InventoryEntry{},
		Target: v1.InventoryTarget{Cluster: v1.ClusterLocal, ServiceAccountName: "deployer"}}
	for _, entry := range entries {
		record.Entries[EntryKey(entry)] = entry
	}
	return record
}

// elsewhere is the record on another cluster.
func elsewhere(record Record) Record {
	record.Target.Cluster = "5f1c"
	record.Target.KubeConfig = v1.InventoryKubeConfig{Kind: v1.KubeConfigSecret, Name: "remote"}
	return record
}

func keys(names ...string) map[Key]bool {
	set := map[Key]bool{}
	for _, name := range names {
		set[EntryKey(entry(name))] = true
	}
	return set
}

func TestKeyString(t *testing.T) {
	cases := map[string]Key{
		"Deployment.apps payments/web": {Group: "apps", Kind: "Deployment", Namespace: "payments", Name: "web"},
		"ConfigMap payments/web":       {Kind: "ConfigMap", Namespace: "payments", Name: "web"},
		"Namespace payments":           {Kind: "Namespace", Name: "payments"},
	}
	for want, key := range cases {
		if got := key.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// T-65: what may come to exist is recorded before it does; what was recorded stays as it was, so that a pass after a
// crash writes it again.
func TestAheadHoldsOldAndNew(t *testing.T) {
	before := record("app", 0, confirmed("old", "1"), confirmed("both", "2"))
	got := before.Ahead([]v1.InventoryEntry{confirmed("both", "2"), entry("new")})
	want := record("app", 0, confirmed("old", "1"), confirmed("both", "2"), entry("new"))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	if len(before.Entries) != 2 {
		t.Errorf("the record it was made from changed: %v", before.Keys())
	}
}

// The recorded object is gone and another one is about to be made, or to be adopted: after a crash in between nothing but
// the new entry leads to it.
func TestAheadOfAnotherObjectReplacesTheEntry(t *testing.T) {
	before := record("app", 0, confirmed("deleted", "1"), confirmed("remade", "2"), entry("unconfirmed"))
	remade, seen := entry("remade"), entry("unconfirmed")
	remade.UID, seen.UID = "3", "4"
	got := before.Ahead([]v1.InventoryEntry{entry("deleted"), remade, seen})
	want := record("app", 0, entry("deleted"), remade, entry("unconfirmed"))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

func TestWhatHadLeftIsBack(t *testing.T) {
	left := confirmed("back", "1")
	left.RenderedHash, left.Left = "", true
	back := left
	back.Left = false
	got := record("app", 0, left).Ahead([]v1.InventoryEntry{back})
	if diff := cmp.Diff(record("app", 0, back), got); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

func TestLeftovers(t *testing.T) {
	cases := map[string]struct {
		records []Record
		desired map[Key]bool
		want    []string
	}{
		"what no stage renders any more": {
			records: []Record{record("one", 0, entry("a"), entry("b"))},
			desired: keys("a"),
			want:    []string{"one b"},
		},
		// T-67: an object that moved to another stage is no leftover of the one it left.
		"moved between stages": {
			records: []Record{record("one", 0, entry("a")), record("two", 1, entry("b"))},
			desired: keys("a", "b"),
		},
		"a stage that is gone": {
			records: []Record{record("one", 0, entry("a")), record("two", 1, entry("b"))},
			desired: keys("a"),
			want:    []string{"two b"},
		},
		// The release goes to another cluster now: what it renders is not what is here.
		"applied to another cluster": {
			records: []Record{record("one", 0, entry("a")), elsewhere(record("one", 0, entry("a"), entry("b")))},
			desired: keys("a"),
			want:    []string{"one a", "one b"},
		},
		// What is there by two names of one cluster is one object.
		"the same cluster by another URL": {
			records: []Record{
				record("one", 0, confirmed("a", "1"), confirmed("b", "2")),
				elsewhere(record("one", 0, confirmed("a", "1"), confirmed("b", "3"), confirmed("c", "4"))),
			},
			desired: keys("a", "b"),
			want:    []string{"one b", "one c"},
		},
		"everything, from the last stage to the first": {
			records: []Record{record("one", 0, entry("b"), entry("a")), record("two", 1, entry("d"), entry("c"))},
			want:    []string{"two c", "two d", "one a", "one b"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, leftover := range Leftovers(tc.records, tc.desired, v1.ClusterLocal) {
				got = append(got, leftover.Record.Stage+" "+leftover.Entry.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("leftovers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestShrinkKeepsWhatIsOursOrNotSeenGone(t *testing.T) {
	one := record("one", 0, confirmed("a", "1"), entry("moved"), entry("gone"), confirmed("stuck", "2"))
	two := record("two", 1, entry("moved"))
	owner := map[Key]ID{}
	for key := range keys("a") {
		owner[key] = one.ID()
	}
	for key := range keys("moved") {
		owner[key] = two.ID()
	}
	// What is gone here may still be there.
	other := elsewhere(record("one", 0, entry("a"), entry("gone"), entry("stuck")))
	unseen := map[Place]bool{}
	for key := range keys("stuck") {
		unseen[one.ID().Place(key)] = true
	}
	for key := range keys("a", "gone") {
		unseen[other.ID().Place(key)] = true
	}
	got := Shrink([]Record{one, two, other}, owner, unseen)
	left := confirmed("stuck", "2")
	left.RenderedHash, left.Left = "", true // what has left the release does not leave it again
	leftElsewhere := func(name string) v1.InventoryEntry {
		left := entry(name)
		left.Left = true
		return left
	}
	want := []Record{record("one", 0, confirmed("a", "1"), left), record("two", 1, entry("moved")),
		elsewhere(record("one", 0, leftElsewhere("a"), leftElsewhere("gone")))}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	if one.Entries[EntryKey(left)].RenderedHash == "" {
		t.Error("the record that was given has changed")
	}
}

// T-106: a stage of many objects is split, and put together again without a loss.
func TestSplitAndJoin(t *testing.T) {
	owner := &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "shop", UID: "u"}}
	large := record("app", 3)
	for i := range 2*ShardSize + 1 {
		one := entry(fmt.Sprintf("cm-%05d", i))
		large.Entries[EntryKey(one)] = one
	}
	shards := Split(owner, large)
	var sizes []int
	names := map[string]bool{}
	for _, shard := range shards {
		sizes = append(sizes, len(shard.Spec.Entries))
		names[shard.Name] = true
	}
	if diff := cmp.Diff([]int{ShardSize, ShardSize, 1}, sizes); diff != "" {
		t.Errorf("sizes of shards (-want +got):\n%s", diff)
	}
	if len(names) != len(shards) {
		t.Errorf("shards share names: %v", names)
	}
	if diff := cmp.Diff([]Record{large}, Join(shards)); diff != "" {
		t.Errorf("joined (-want +got):\n%s", diff)
	}
}

func TestSplitOfAnEmptyRecordIsOneShard(t *testing.T) {
	owner := &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "shop"}}
	if got := len(Split(owner, record("app", 0))); got != 1 {
		t.Errorf("got %d shards, want 1", got)
	}
}

func TestShardNames(t *testing.T) {
	id := record("app", 0).ID()
	other := id
	other.Target.ServiceAccountName = "other"
	remote, key := elsewhere(record("app", 0)).ID(), elsewhere(record("app", 0)).ID()
	key.Target.KubeConfig.Key = "key"
	long := strings.Repeat("x", 253)
	names := map[string]string{
		"first":         shardName("shop", id, 0),
		"second":        shardName("shop", id, 1),
		"other account": shardName("shop", other, 0),
		"other cluster": shardName("shop", remote, 0),
		"other key":     shardName("shop", key, 0),
		// A dot in a StageSet's name must not make it look like another StageSet's stage.
		"dotted":       shardName("shop.app", id, 0),
		"long":         shardName(long, id, 0),
		"another long": shardName(long[:252]+"y", id, 0),
	}
	seen := map[string]string{}
	for what, name := range names {
		if twin, taken := seen[name]; taken {
			t.Errorf("%s and %s share the name %s", what, twin, name)
		}
		seen[name] = what
		if len(name) > maxName {
			t.Errorf("%s: name of %d characters", what, len(name))
		}
	}
}

func TestHasher(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(strings.Repeat("k", minKey)), 0o600); err != nil {
		t.Fatal(err)
	}
	hash := func(hasher Hasher, data map[string]any) string {
		t.Helper()
		got, err := hasher.Hash(&unstructured.Unstructured{Object: map[string]any{"data": data}})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	keyed, err := NewHasher(file)
	if err != nil {
		t.Fatal(err)
	}
	again, err := NewHasher(file)
	if err != nil {
		t.Fatal(err)
	}
	random, err := NewHasher("")
	if err != nil {
		t.Fatal(err)
	}
	content := map[string]any{"a": "1", "b": "2"}
	if hash(keyed, content) != hash(again, map[string]any{"b": "2", "a": "1"}) {
		t.Error("equal content under one key has two hashes")
	}
	if hash(keyed, content) == hash(random, content) {
		t.Error("the hash does not depend on the key: a viewer could guess what a Secret holds")
	}
	if hash(keyed, content) == hash(keyed, map[string]any{"a": "1"}) {
		t.Error("different content has one hash")
	}
}

func TestHasherRefusesAWeakKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewHasher(file); err == nil || !strings.Contains(err.Error(), "5 bytes") {
		t.Errorf("got error %v, want one that names the size", err)
	}
	if _, err := NewHasher(file + "-missing"); err == nil {
		t.Error("a missing file is no error")
	}
}
