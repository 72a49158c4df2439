package store

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/inventory"
)

// IndexObject is the field index that the client's cache must have on StageInventory: the objects of its entries, and the cluster they are on.
const IndexObject = "spec.entries"

// ObjectsOf extracts the values of IndexObject.
func ObjectsOf(obj client.Object) []string {
	shard := obj.(*v1.StageInventory)
	objects := make([]string, 0, len(shard.Spec.Entries))
	for _, entry := range shard.Spec.Entries {
		objects = append(objects, indexed(idOf(shard).Place(inventory.EntryKey(entry))))
	}
	return objects
}

// indexed is an object on a cluster as a value of IndexObject.
func indexed(place inventory.Place) string { return place.Cluster + " " + place.Key.String() }

// claims maps objects, each on its cluster, to the shards that have entries for them.
type claims map[inventory.Place]map[types.NamespacedName]bool

func (c claims) add(name types.NamespacedName, shard *v1.StageInventory) {
	for _, entry := range shard.Spec.Entries {
		place := idOf(shard).Place(inventory.EntryKey(entry))
		if c[place] == nil {
			c[place] = map[types.NamespacedName]bool{}
		}
		c[place][name] = true
	}
}

func (c claims) remove(name types.NamespacedName, shard *v1.StageInventory) {
	for _, entry := range shard.Spec.Entries {
		place := idOf(shard).Place(inventory.EntryKey(entry))
		delete(c[place], name)
		if len(c[place]) == 0 {
			delete(c, place)
		}
	}
}

// Claims are the StageSets that exist and whose inventories have an entry for the object on its cluster, with what this process
// has written last, which the cache may not show yet. It says nothing else of them.
func (s *Store) Claims(ctx context.Context, place inventory.Place) ([]inventory.Claim, error) {
	var list v1.StageInventoryList
	// The inventories are only looked at: copies of all their entries, for every new object, would be a lot of garbage.
	err := s.client.List(ctx, &list, client.MatchingFields{IndexObject: indexed(place)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("find the inventories that have %s: %w", place.Key, err)
	}
	var found []inventory.Claim
	for owner := range s.claimants(place, list.Items) {
		var set v1.StageSet
		switch err := s.client.Get(ctx, owner, &set); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("read StageSet %s: %w", owner, err)
		default:
			found = append(found, inventory.Claim{
				Namespace: owner.Namespace, Name: owner.Name,
				Age: inventory.Age{Created: set.CreationTimestamp.Time, UID: set.UID},
			})
		}
	}
	return found, nil
}

// claimants are the StageSets of the shards that have the object.
func (s *Store) claimants(place inventory.Place, cached []v1.StageInventory) map[types.NamespacedName]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	owners := map[types.NamespacedName]bool{}
	note := func(shard *v1.StageInventory) {
		owners[types.NamespacedName{Namespace: shard.Namespace, Name: shard.Spec.StageSet}] = true
	}
	for i := range cached {
		own := s.written[client.ObjectKeyFromObject(&cached[i])]
		if own == nil || version(&cached[i]) >= version(own) {
			note(&cached[i])
		}
	}
	for name := range s.claimed[place] {
		note(s.written[name])
	}
	return owners
}
