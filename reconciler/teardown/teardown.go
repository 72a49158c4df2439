// Package teardown deletes what left a release, and all of it when its StageSet is deleted: stage by stage in reverse, each
// as the account that applied it. It never waits: what is still there is in its Result, and a later pass goes on.
package teardown

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"k8s.io/utils/clock"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/inventory/store"
	"github.com/stageset/stageset/reconciler/ownership"
	"github.com/stageset/stageset/reconciler/prune"
	"github.com/stageset/stageset/reconciler/tenant"
)

// Tenants makes the clients that entries are deleted with.
type Tenants interface {
	// Destination finds the cluster that an inventory records.
	Destination(ctx context.Context, reference tenant.Reference) (tenant.Destination, error)
	// Target is the client of an account on a cluster.
	Target(ctx context.Context, to tenant.Destination, account tenant.Account) (*tenant.Client, error)
}

// Teardown deletes for one StageSet.
type Teardown struct {
	Tenants Tenants
	Owner   ownership.Owner
	// Account is the StageSet's own, which reads what leads to other clusters.
	Account     tenant.Account
	Concurrency int
	Clock       clock.PassiveClock
	// Prune says whether what left a stage, by name, is deleted; recorded is what the stage's prune was when it was last
	// written.
	Prune func(stage string, recorded bool) bool
	// Timeout is how long the deletion of a stage, by name, may take before the next one no longer waits for it. It counts
	// from when the deletion of the last of its objects was asked for, so that no process has to remember it.
	Timeout func(stage string) time.Duration
	// Home is the namespace that the reconciler itself lives in.
	Home string
	// Step begins the step, or what it does for a stage, and returns what ends it; nil tells nobody.
	Step func(ctx context.Context, name string, about ...slog.Attr) (within context.Context, end func())
}

// Result says what became of the leftovers. Everything that is neither unseen nor an orphan is gone or meant to be kept.
type Result struct {
	// Unseen are the objects that were not yet seen gone; they stay in the inventory.
	Unseen map[inventory.Place]bool
	// Waiting are those of them that are being deleted.
	Waiting []inventory.Key
	// Pause is when to look at those again.
	Pause time.Duration
	// Orphans stay in the cluster although they should be deleted, because the account that could delete them is gone.
	Orphans Orphans
	// Lost are on another cluster, which nothing leads to any more.
	Lost Orphans
	// Spared stay in the cluster too, because deleting them would delete far more than what was applied.
	Spared Orphans
	// Doubtful stay in the cluster as well, because they may be somebody else's.
	Doubtful Orphans
	// Failed are the objects that could not be deleted.
	Failed []prune.Failure

	// entries is how many entries of an unseen object are not settled: two records may hold it, with different UIDs.
	entries map[inventory.Place]int
}

// settle notes that nothing is left to do for one entry of an object; the object is unseen until that holds for all.
func (r *Result) settle(place inventory.Place) {
	if r.entries[place] > 1 {
		r.entries[place]--
		return
	}
	delete(r.Unseen, place)
}

// doubt settles an entry of an object that may be somebody else's. If another entry of it is not settled, that one knows.
func (r *Result) doubt(place inventory.Place) {
	if r.entries[place] == 1 {
		r.Doubtful.Keys = append(r.Doubtful.Keys, place.Key)
	}
	r.settle(place)
}

// Leftovers deletes what the book records and no stage of the release, which is applied to the cluster, renders any more. It
// leaves the book as it is.
func (t Teardown) Leftovers(ctx context.Context, book *store.Book, desired map[inventory.Key]bool, cluster string) Result {
	return t.run(ctx, inventory.Leftovers(book.Records(), desired, cluster))
}

// Everything deletes all that the book records. It leaves the book as it is.
func (t Teardown) Everything(ctx context.Context, book *store.Book) Result {
	return t.run(ctx, inventory.Leftovers(book.Records(), nil, ""))
}

// Outside are the objects that the book records and that do not go when the StageSet's namespace goes.
func (t Teardown) Outside(book *store.Book) Orphans {
	lost := Orphans{Why: "its namespace is being deleted"}
	for _, leftover := range t.pruned(inventory.Leftovers(book.Records(), nil, "")) {
		key := inventory.EntryKey(leftover.Entry)
		itself := key == inventory.Key{Kind: "Namespace", Name: t.Owner.Namespace}
		if isRemote(leftover.Record) || key.Namespace != t.Owner.Namespace && !itself {
			lost.Keys = append(lost.Keys, key)
		}
	}
	return lost
}

// isRemote is true for what is on another cluster.
func isRemote(record inventory.ID) bool { return record.Target.Cluster != v1.ClusterLocal }

// spared is true for what is never deleted: besides what nobody's StageSet deletes, the namespace that the reconciler is in.
func (t Teardown) spared(record inventory.ID, key inventory.Key) bool {
	home := !isRemote(record) && key == inventory.Key{Kind: "Namespace", Name: t.Home}
	return home || record.Place(key).Spared(t.Owner.Namespace)
}

// Keep takes out of the book whatever is not in unseen, and removes inventories that hold nothing any more.
func Keep(ctx context.Context, book *store.Book, unseen map[inventory.Place]bool) error {
	for _, record := range inventory.Shrink(book.Records(), nil, unseen) {
		var err error
		if len(record.Entries) == 0 {
			err = book.Drop(ctx, record.ID())
		} else {
			err = book.Save(ctx, record)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pruned are the leftovers that are meant to be deleted.
func (t Teardown) pruned(leftovers []inventory.Leftover) []inventory.Leftover {
	return slices.DeleteFunc(leftovers, func(l inventory.Leftover) bool {
		return l.Entry.Keep || !t.Prune(l.Record.Stage, l.Prune)
	})
}

// run deletes leftovers. It goes on to the next step only when the one before is done, failed or overdue, and to what the
// accounts live from only when everything else is done: without it, what is left could not even be looked at.
func (t Teardown) run(ctx context.Context, leftovers []inventory.Leftover) Result {
	ctx, end := t.begin(ctx, "prune")
	defer end()
	result := Result{
		Unseen: map[inventory.Place]bool{}, entries: map[inventory.Place]int{},
		Orphans: Orphans{Why: "the account that applied them is gone"},
		Lost:    Orphans{Why: "the kubeConfig that they were applied with does not lead to their cluster any more"},
		Spared:  Orphans{Why: "it would take the StageSet, or the product, with it"},
		Doubtful: Orphans{
			Why: "it was made anew, with the StageSet's labels, by somebody who copied or restored it",
		},
	}
	leftovers = slices.DeleteFunc(t.pruned(leftovers), func(leftover inventory.Leftover) bool {
		key := inventory.EntryKey(leftover.Entry)
		if !t.spared(leftover.Record, key) {
			return false
		}
		result.Spared.Keys = append(result.Spared.Keys, key)
		return true
	})
	for _, leftover := range leftovers {
		place := leftover.Record.Place(inventory.EntryKey(leftover.Entry))
		result.Unseen[place] = true
		result.entries[place]++
	}
	for _, step := range prune.Plan(t.Owner.Namespace, leftovers) {
		if step.Identity && len(result.Waiting)+len(result.Failed) > 0 || !t.step(ctx, step, &result) {
			break
		}
	}
	return result
}

// begin begins a step; what it returns ends it.
func (t Teardown) begin(ctx context.Context, name string, about ...slog.Attr) (within context.Context, end func()) {
	if t.Step == nil {
		return ctx, func() {}
	}
	return t.Step(ctx, name, about...)
}

// step deletes one step's entries; it returns false when the next step has to wait.
func (t Teardown) step(ctx context.Context, step prune.Step, result *Result) bool {
	ctx, end := t.begin(ctx, "delete", slog.String("stage", step.Record.Stage), slog.Int("objects", len(step.Entries)))
	defer end()
	client, err := t.target(ctx, step.Record.Target)
	if err != nil {
		for _, entry := range step.Entries {
			result.fail(prune.Failure{Key: inventory.EntryKey(entry), Err: err}, step.Record, t.Owner.Namespace)
		}
		return true
	}
	outcome := prune.Run(ctx, client, t.Owner, step, t.Concurrency)
	for _, key := range slices.Concat(outcome.Gone, outcome.Kept) {
		result.settle(step.Record.Place(key))
	}
	for _, key := range outcome.Doubtful {
		result.doubt(step.Record.Place(key))
	}
	for _, failed := range outcome.Failed {
		result.fail(failed, step.Record, t.Owner.Namespace)
	}
	if len(outcome.Waiting) == 0 {
		return true
	}
	var waited time.Duration
	if !outcome.Since.IsZero() {
		waited = t.Clock.Since(outcome.Since)
	}
	result.wait(outcome.Waiting, waited)
	return waited > t.Timeout(step.Record.Stage)
}

// target is the client of what an inventory records.
func (t Teardown) target(ctx context.Context, recorded v1.InventoryTarget) (*tenant.Client, error) {
	to, err := t.Tenants.Destination(ctx, tenant.Recorded(t.Account, recorded))
	if err != nil {
		return nil, err
	}
	return t.Tenants.Target(ctx, to, tenant.Account{Namespace: t.Owner.Namespace, Name: recorded.ServiceAccountName})
}

// Pauses between two looks at what is being deleted.
const (
	minPause = time.Second
	maxPause = 15 * time.Second
)

// wait notes objects that are being deleted. The longer it has taken, the less often they are looked at.
func (r *Result) wait(keys []inventory.Key, waited time.Duration) {
	pause := min(max((waited/4).Truncate(time.Second), minPause), maxPause)
	if len(r.Waiting) == 0 || pause < r.Pause {
		r.Pause = pause
	}
	r.Waiting = append(r.Waiting, keys...)
}

// fail notes an object of a record that could not be deleted. If its account is gone, nobody can delete as it any more, and
// if it is the account itself that was to be deleted, that is done; if nothing leads to its cluster any more, nobody can
// either.
func (r *Result) fail(failed prune.Failure, of inventory.ID, namespace string) {
	place := of.Place(failed.Key)
	account := inventory.Key{Kind: "ServiceAccount", Namespace: namespace, Name: of.Target.ServiceAccountName}
	switch {
	case errors.Is(failed.Err, tenant.ErrGone):
		r.settle(place)
		r.Lost.Keys = append(r.Lost.Keys, failed.Key)
	case failure.From(failed.Err).Reason != v1.ReasonServiceAccountNotFound:
		failed.OutOfReach = isRemote(of) && tenant.OutOfReach(failed.Err)
		r.Failed = append(r.Failed, failed)
	case isRemote(of) || failed.Key != account:
		r.settle(place)
		r.Orphans.Keys = append(r.Orphans.Keys, failed.Key)
	default:
		r.settle(place)
	}
}
