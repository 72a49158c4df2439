package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/inventory"
)

// lagging is an API server whose cache can be held at a moment: only the lag is simulated, nothing else is asserted of it.
type lagging struct {
	client.Client
	frozen *v1.StageInventoryList
	writes int
	// dies is after how many writes the API server is not reached any more; never if it is zero.
	dies int
}

func (l *lagging) write() error {
	if l.dies > 0 && l.writes == l.dies {
		return errors.New("the process died")
	}
	l.writes++
	return nil
}

func newLagging(t *testing.T) *lagging {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	lag := &lagging{}
	lag.Client = fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&v1.StageInventory{}, IndexStageSet, StageSetOf).
		WithIndex(&v1.StageInventory{}, IndexObject, ObjectsOf).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
				if err := lag.write(); err != nil {
					return err
				}
				return c.Create(ctx, obj, o...)
			},
			Update: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.UpdateOption) error {
				if err := lag.write(); err != nil {
					return err
				}
				return c.Update(ctx, obj, o...)
			},
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
				if lag.frozen == nil {
					return c.List(ctx, list, o...)
				}
				lag.frozen.DeepCopyInto(list.(*v1.StageInventoryList))
				selectByIndex(list.(*v1.StageInventoryList), o)
				return nil
			},
		}).Build()
	return lag
}

// selectByIndex leaves what the options select by the indexes.
func selectByIndex(list *v1.StageInventoryList, options []client.ListOption) {
	var selected client.ListOptions
	selected.ApplyOptions(options)
	if selected.FieldSelector == nil {
		return
	}
	extract := map[string]client.IndexerFunc{IndexStageSet: StageSetOf, IndexObject: ObjectsOf}
	for _, requirement := range selected.FieldSelector.Requirements() {
		list.Items = slices.DeleteFunc(list.Items, func(shard v1.StageInventory) bool {
			return !slices.Contains(extract[requirement.Field](&shard), requirement.Value)
		})
	}
}

// freeze keeps the cache as it is now.
func (l *lagging) freeze(t *testing.T) {
	t.Helper()
	var now v1.StageInventoryList
	if err := l.List(t.Context(), &now); err != nil {
		t.Fatal(err)
	}
	l.frozen = &now
}

var owner = &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "shop", UID: "u"}}

func record(names ...string) inventory.Record {
	record := inventory.Record{Stage: "app", Prune: true, Entries: map[inventory.Key]v1.InventoryEntry{},
		Target: v1.InventoryTarget{Cluster: v1.ClusterLocal, ServiceAccountName: "deployer"}}
	for _, name := range names {
		entry := v1.InventoryEntry{Version: "v1", Kind: "ConfigMap", Namespace: "team-a", Name: name}
		record.Entries[inventory.EntryKey(entry)] = entry
	}
	return record
}

func open(t *testing.T, store *Store) *Book {
	t.Helper()
	book, err := store.Open(t.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}
	return book
}

func save(t *testing.T, book *Book, record inventory.Record) {
	t.Helper()
	if err := book.Save(t.Context(), record); err != nil {
		t.Fatal(err)
	}
}

func TestAPassSeesWhatTheOneBeforeWroteAlthoughTheCacheLags(t *testing.T) {
	lag := newLagging(t)
	store := New(lag)
	save(t, open(t, store), record("a"))
	lag.freeze(t)
	save(t, open(t, store), record("a", "b"))
	if diff := cmp.Diff([]inventory.Record{record("a", "b")}, open(t, store).Records()); diff != "" {
		t.Errorf("records of the pass after (-want +got):\n%s", diff)
	}
	lag.frozen = nil
	if diff := cmp.Diff([]inventory.Record{record("a", "b")}, open(t, store).Records()); diff != "" {
		t.Errorf("records when the cache caught up (-want +got):\n%s", diff)
	}
	if len(store.written) != 0 {
		t.Errorf("%d of our writes are still remembered although the cache has them", len(store.written))
	}
}

func TestSaveOfWhatIsStoredWritesNothing(t *testing.T) {
	lag := newLagging(t)
	store := New(lag)
	save(t, open(t, store), record("a"))
	before := lag.writes
	save(t, open(t, store), record("a"))
	if lag.writes != before {
		t.Errorf("%d writes, want none", lag.writes-before)
	}
}

// A crash between the two steps of Drop, or a restored backup, leaves an inventory that the garbage collector may remove
// before the teardown that needs it.
func TestSaveProtectsWhatIsStored(t *testing.T) {
	for name, damage := range map[string]func(*v1.StageInventory){
		"no finalizer":   func(shard *v1.StageInventory) { shard.Finalizers = nil },
		"a former owner": func(shard *v1.StageInventory) { shard.OwnerReferences[0].UID = "former" },
	} {
		t.Run(name, func(t *testing.T) {
			lag := newLagging(t)
			save(t, open(t, New(lag)), record("a"))
			intact := only(t, lag)
			damaged := intact.DeepCopy()
			damage(damaged)
			if err := lag.Update(t.Context(), damaged); err != nil {
				t.Fatal(err)
			}
			save(t, open(t, New(lag)), record("a"))
			got := only(t, lag)
			if diff := cmp.Diff(intact.Finalizers, got.Finalizers); diff != "" {
				t.Errorf("finalizers (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(intact.OwnerReferences, got.OwnerReferences); diff != "" {
				t.Errorf("owners (-want +got):\n%s", diff)
			}
		})
	}
}

// only is the one inventory that is stored.
func only(t *testing.T, stored client.Reader) *v1.StageInventory {
	t.Helper()
	var list v1.StageInventoryList
	if err := stored.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 {
		t.Fatalf("%d inventories, want one", len(list.Items))
	}
	return &list.Items[0]
}

func TestAConflictStartsThePassAgainAndIsForgotten(t *testing.T) {
	lag := newLagging(t)
	store := New(lag)
	save(t, open(t, store), record("a"))
	stale := open(t, store)
	save(t, open(t, New(lag)), record("a", "other"))
	err := stale.Save(t.Context(), record("a", "b"))
	if err == nil {
		t.Fatal("a write on an outdated inventory succeeded")
	}
	if failed := failure.From(err); failed.Reason != v1.ReasonProgressing || failed.Kind != failure.Transient {
		t.Errorf("got %s, %s: %v", failed.Reason, failed.Kind, err)
	}
	if diff := cmp.Diff([]inventory.Record{record("a", "other")}, open(t, store).Records()); diff != "" {
		t.Errorf("records after the conflict (-want +got):\n%s", diff)
	}
}

// T-65, T-106: a stage that outgrows its shards is written shard by shard, and the process may die after each of them.
func TestNoEntryIsLostBetweenTwoShards(t *testing.T) {
	names := make([]string, 0, inventory.ShardSize)
	for i := range inventory.ShardSize {
		names = append(names, fmt.Sprintf("m-%05d", i))
	}
	lag := newLagging(t)
	save(t, open(t, New(lag)), record(names...))
	lag.dies = lag.writes + 1
	grown := record(append(names, "a-new", "z-new")...)
	grown.Prune = false // so that both shards have to be written
	if err := open(t, New(lag)).Save(t.Context(), grown); err == nil {
		t.Fatal("the second shard was written")
	}
	recorded := open(t, New(lag)).Record(record().ID())
	for _, key := range record(names...).Keys() {
		if _, found := recorded.Entries[key]; !found {
			t.Errorf("%s is in no inventory any more", key)
		}
	}
}

func TestDropRemovesFinalizerAndObject(t *testing.T) {
	lag := newLagging(t)
	store := New(lag)
	book := open(t, store)
	save(t, book, record("a"))
	if err := book.Drop(t.Context(), record().ID()); err != nil {
		t.Fatal(err)
	}
	var left v1.StageInventoryList
	if err := lag.List(t.Context(), &left); err != nil {
		t.Fatal(err)
	}
	if len(left.Items) != 0 || len(book.Records()) != 0 {
		t.Errorf("%d objects and %d records are left", len(left.Items), len(book.Records()))
	}
}
