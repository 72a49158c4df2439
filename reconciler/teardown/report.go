package teardown

import (
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/inventory/store"
	"github.com/stageset/stageset/reconciler/prune"
)

// maxNamed is how many objects a message names before it counts.
const maxNamed = 20

// Orphans are objects that stay in the cluster although they should be deleted.
type Orphans struct {
	Keys []inventory.Key
	// Why completes "… leaves behind what it applied, because …".
	Why string
}

// String lists the objects; at most twenty, then a count.
func (o Orphans) String() string { return names(o.Keys) }

// Left is all that stays in the cluster although it should be deleted, by why it does.
func (r Result) Left() []Orphans { return []Orphans{r.Orphans, r.Lost, r.Spared, r.Doubtful} }

// Recorded are all objects that the book records.
func Recorded(book *store.Book, why string) Orphans {
	all := Orphans{Why: why}
	for _, record := range book.Records() {
		all.Keys = append(all.Keys, record.Keys()...)
	}
	return all
}

// Abandoned are all objects that were not seen gone and are not going to be.
func (r Result) Abandoned(why string) Orphans {
	abandoned := Orphans{Why: why}
	for place := range r.Unseen {
		abandoned.Keys = append(abandoned.Keys, place.Key)
	}
	slices.SortFunc(abandoned.Keys, inventory.Compare)
	return abandoned
}

// WaitsFor names the objects that are being deleted.
func (r Result) WaitsFor() string { return names(r.Waiting) }

// OutOfReach is true when some objects are on another cluster that cannot be asked.
func (r Result) OutOfReach() bool {
	return slices.ContainsFunc(r.Failed, func(failed prune.Failure) bool { return failed.OutOfReach })
}

// Failure is the result as a *failure.Error with the reason; nil if nothing failed. It is Stalled when all that is wrong are
// missing permissions, and other clusters that cannot be asked. What a policy or a webhook denies is not among them: it is
// meant to stay, and may be let go later.
func (r Result) Failure(reason string) error {
	if len(r.Failed) == 0 {
		return nil
	}
	kind := failure.Stalled
	var texts []string
	for i, failed := range r.Failed {
		text := failed.Key.String() + ": " + failed.Err.Error()
		if failed.Denied {
			text += " (the account has the permission: what refuses is a policy or another rule of the cluster)"
		}
		if failed.Denied || !mayNot(failed.Err) && !failed.OutOfReach {
			kind = failure.Transient
		}
		if i < maxNamed {
			texts = append(texts, text)
		}
	}
	texts = failure.AndMore(texts, len(r.Failed)-maxNamed)
	return &failure.Error{Reason: reason, Kind: kind, Err: errors.New("cannot delete " + strings.Join(texts, "; "))}
}

// mayNot is true for what the account may not do, and for what no account may be used for: the reconciler's own is not
// allowed any more where it was used.
func mayNot(err error) bool {
	return apierrors.IsForbidden(err) || failure.From(err).Reason == v1.ReasonServiceAccountRequired
}

// Withheld is the result with a text in place of what API servers said of the objects that could not be deleted.
func (r Result) Withheld(text string) Result {
	r.Failed = slices.Clone(r.Failed)
	for i := range r.Failed {
		r.Failed[i].Err = withheld{error: r.Failed[i].Err, text: text}
	}
	return r
}

// withheld is an error that means the same in other words.
type withheld struct {
	error
	text string
}

func (w withheld) Error() string { return w.text }

func (w withheld) Unwrap() error { return w.error }

func names(keys []inventory.Key) string {
	var list []string
	for _, key := range keys[:min(len(keys), maxNamed)] {
		list = append(list, key.String())
	}
	return strings.Join(failure.AndMore(list, len(keys)-maxNamed), ", ")
}
