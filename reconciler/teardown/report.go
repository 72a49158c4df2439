package teardown

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/inventory/store"
)

// maxNamed is how many objects a message names before it counts.
const maxNamed = 20

// Orphans are objects that stay in the cluster although they should be deleted.
type Orphans struct {
	Keys []inventory.Key
	// Why completes "leaves behind what it applied, because …".
	Why string
}

// String lists the objects; at most twenty, then a count.
func (o Orphans) String() string { return names(o.Keys) }

// Outside are the objects that the book records and that do not go when the namespace goes.
func Outside(book *store.Book, namespace string) Orphans {
	lost := Orphans{Why: "its namespace is being deleted"}
	for _, leftover := range inventory.Leftovers(book.Records(), nil) {
		key := inventory.EntryKey(leftover.Entry)
		if leftover.Prune && key.Namespace != namespace {
			lost.Keys = append(lost.Keys, key)
		}
	}
	return lost
}

// Abandoned are all objects that were not seen gone and are not going to be.
func (r Result) Abandoned(why string) Orphans {
	keys := slices.Concat(slices.SortedFunc(maps.Keys(r.Unseen), inventory.Compare), r.Orphans.Keys)
	return Orphans{Keys: keys, Why: why}
}

// WaitsFor names the objects that are being deleted.
func (r Result) WaitsFor() string { return names(r.Waiting) }

// Failure is the result as a *failure.Error with the reason; nil if nothing failed. It is Stalled when all that is wrong are
// missing permissions.
func (r Result) Failure(reason string) error {
	if len(r.Failed) == 0 {
		return nil
	}
	kind := failure.Stalled
	texts := make([]string, 0, maxNamed+1)
	for i, failed := range r.Failed {
		if !apierrors.IsForbidden(failed.Err) {
			kind = failure.Transient
		}
		if i < maxNamed {
			texts = append(texts, failed.Key.String()+": "+failed.Err.Error())
		}
	}
	if more := len(r.Failed) - maxNamed; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return &failure.Error{Reason: reason, Kind: kind, Err: errors.New("cannot delete " + strings.Join(texts, "; "))}
}

func names(keys []inventory.Key) string {
	list := make([]string, 0, maxNamed+1)
	for _, key := range keys[:min(len(keys), maxNamed)] {
		list = append(list, key.String())
	}
	if more := len(keys) - maxNamed; more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, ", ")
}
