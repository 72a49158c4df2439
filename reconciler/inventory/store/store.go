// Package store reads and writes StageInventory objects with the reconciler's own identity, which alone may write them. It
// never reads or writes anything that a tenant names.
package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/inventory"
)

// IndexStageSet is the field index that the client's cache must have on StageInventory: spec.stageSet.
const IndexStageSet = "spec.stageSet"

// StageSetOf extracts the value of IndexStageSet.
func StageSetOf(obj client.Object) []string {
	return []string{obj.(*v1.StageInventory).Spec.StageSet}
}

// Store is safe for concurrent use by passes of different StageSets.
type Store struct {
	// client reads from a cache that has IndexStageSet and IndexObject, and writes.
	client client.Client

	mu sync.Mutex
	// written are our own writes that the cache has not shown yet, so that a pass never decides on less than the one
	// before it wrote.
	written map[types.NamespacedName]*v1.StageInventory
	// claimed are the objects that written has entries for.
	claimed claims
}

// New is a store on a cached client.
func New(cached client.Client) *Store {
	return &Store{client: cached, written: map[types.NamespacedName]*v1.StageInventory{}, claimed: claims{}}
}

// Open reads the inventory of a StageSet for one pass.
func (s *Store) Open(ctx context.Context, owner *v1.StageSet) (*Book, error) {
	var list v1.StageInventoryList
	err := s.client.List(ctx, &list, client.InNamespace(owner.Namespace), client.MatchingFields{IndexStageSet: owner.Name})
	if err != nil {
		return nil, fmt.Errorf("read the inventory of StageSet %s/%s: %w", owner.Namespace, owner.Name, err)
	}
	book := &Book{store: s, owner: owner, shards: map[string]*v1.StageInventory{}}
	for i := range list.Items {
		book.shards[list.Items[i].Name] = list.Items[i].DeepCopy()
	}
	s.overlay(owner, book.shards)
	return book, nil
}

// overlay puts our own newer writes over what the cache has, and forgets those that the cache has caught up with.
func (s *Store) overlay(owner *v1.StageSet, shards map[string]*v1.StageInventory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, own := range s.written {
		if key.Namespace != owner.Namespace || own.Spec.StageSet != owner.Name {
			continue
		}
		cached, found := shards[key.Name]
		if found && version(cached) >= version(own) {
			s.drop(key)
			continue
		}
		shards[key.Name] = own.DeepCopy()
	}
}

// version orders the states of one object; Kubernetes 1.35 and later promise that resource versions compare as integers.
func version(shard *v1.StageInventory) uint64 {
	number, err := strconv.ParseUint(shard.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return number
}

func (s *Store) remember(shard *v1.StageInventory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := client.ObjectKeyFromObject(shard)
	s.drop(key)
	s.written[key] = shard.DeepCopy()
	s.claimed.add(key, shard)
}

func (s *Store) forget(shard *v1.StageInventory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(client.ObjectKeyFromObject(shard))
}

// drop forgets one of our own writes.
func (s *Store) drop(key types.NamespacedName) {
	if known := s.written[key]; known != nil {
		s.claimed.remove(key, known)
		delete(s.written, key)
	}
}

// Book is the inventory of one StageSet during one pass. It is not safe for concurrent use.
type Book struct {
	store  *Store
	owner  *v1.StageSet
	shards map[string]*v1.StageInventory
}

// Records are what the book holds, in the order of inventory.Sort.
func (b *Book) Records() []inventory.Record {
	return inventory.Join(b.sorted())
}

// sorted are all shards in the order of their numbers.
func (b *Book) sorted() []v1.StageInventory {
	shards := make([]v1.StageInventory, 0, len(b.shards))
	for _, shard := range b.shards {
		shards = append(shards, *shard)
	}
	slices.SortFunc(shards, func(x, y v1.StageInventory) int { return int(x.Spec.Shard) - int(y.Spec.Shard) })
	return shards
}

// Terminating is true when the book holds something and all of it is being deleted.
func (b *Book) Terminating() bool {
	for _, shard := range b.shards {
		if shard.DeletionTimestamp.IsZero() {
			return false
		}
	}
	return len(b.shards) > 0
}

// Holds is true when the book has all of a shard that is stored: false means that the cache is behind.
func (b *Book) Holds(stored *v1.StageInventory) bool {
	known, found := b.shards[stored.Name]
	return found && equality.Semantic.DeepEqual(known.Spec, stored.Spec)
}

// Record is the record of one stage and target; an empty one if there is none yet.
func (b *Book) Record(id inventory.ID) inventory.Record {
	for _, record := range b.Records() {
		if record.ID() == id {
			return record
		}
	}
	return inventory.Record{Stage: id.Stage, Target: id.Target, Prune: true}
}

// Save writes a record; what is already stored as wanted costs no request. A conflict means that the cache was behind:
// the pass has to start again.
func (b *Book) Save(ctx context.Context, record inventory.Record) error {
	wanted := inventory.Split(b.owner, record, b.sorted()...)
	for i := range wanted {
		if err := b.saveShard(ctx, &wanted[i]); err != nil {
			return err
		}
	}
	return b.dropShards(ctx, record.ID(), len(wanted))
}

func (b *Book) saveShard(ctx context.Context, wanted *v1.StageInventory) error {
	stored, exists := b.shards[wanted.Name]
	if exists && equality.Semantic.DeepEqual(stored.Spec, wanted.Spec) && protected(stored, wanted) {
		return nil
	}
	if exists && idOf(stored) != idOf(wanted) {
		return fmt.Errorf("StageInventory %s/%s is that of stage %s as %s: it is not overwritten", wanted.Namespace, wanted.Name,
			stored.Spec.Stage, stored.Spec.Target.ServiceAccountName)
	}
	var err error
	if exists {
		updated := stored.DeepCopy()
		updated.Spec, updated.OwnerReferences = wanted.Spec, wanted.OwnerReferences
		if updated.DeletionTimestamp.IsZero() {
			controllerutil.AddFinalizer(updated, v1.InventoryFinalizer)
		}
		wanted = updated
		err = b.store.client.Update(ctx, wanted)
	} else {
		err = b.store.client.Create(ctx, wanted)
	}
	if err != nil {
		b.store.forget(wanted)
		return failed("write", wanted, err)
	}
	b.shards[wanted.Name] = wanted
	b.store.remember(wanted)
	return nil
}

// failed is a request for a shard that failed. If somebody else wrote it, or the cache is behind, the pass starts again.
func failed(what string, shard *v1.StageInventory, err error) error {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return failure.NewTransient(v1.ReasonProgressing, "StageInventory %s/%s changed during the pass: it starts again",
			shard.Namespace, shard.Name)
	}
	return failure.NewTransient(v1.ReasonTargetUnreachable,
		"%s StageInventory %s/%s: %w", what, shard.Namespace, shard.Name, err)
}

// protected is true when a stored shard cannot vanish while it is needed: it has our finalizer, which a crash in the midst of
// Drop may have taken, and the owner that it should have, which a restored backup may not.
func protected(stored, wanted *v1.StageInventory) bool {
	kept := controllerutil.ContainsFinalizer(stored, v1.InventoryFinalizer) || !stored.DeletionTimestamp.IsZero()
	return kept && equality.Semantic.DeepEqual(stored.OwnerReferences, wanted.OwnerReferences)
}

// Drop removes a record: its finalizer first, then the objects.
func (b *Book) Drop(ctx context.Context, id inventory.ID) error {
	return b.dropShards(ctx, id, 0)
}

// dropShards removes the record's shards from number first on.
func (b *Book) dropShards(ctx context.Context, id inventory.ID, first int) error {
	for name, shard := range b.shards {
		if idOf(shard) != id || int(shard.Spec.Shard) < first {
			continue
		}
		if err := b.dropShard(ctx, shard.DeepCopy()); err != nil {
			return failed("remove", shard, err)
		}
		delete(b.shards, name)
	}
	return nil
}

func (b *Book) dropShard(ctx context.Context, shard *v1.StageInventory) error {
	defer b.store.forget(shard)
	if controllerutil.RemoveFinalizer(shard, v1.InventoryFinalizer) {
		if err := b.store.client.Update(ctx, shard); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	if !shard.DeletionTimestamp.IsZero() {
		return nil
	}
	uid, seen := shard.UID, shard.ResourceVersion
	err := b.store.client.Delete(ctx, shard, client.Preconditions{UID: &uid, ResourceVersion: &seen})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// idOf is the record that a shard is part of.
func idOf(shard *v1.StageInventory) inventory.ID {
	return inventory.ID{Stage: shard.Spec.Stage, Target: shard.Spec.Target}
}
