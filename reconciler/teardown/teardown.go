// Package teardown deletes what left a release, and all of it when its StageSet is deleted: stage by stage in reverse, each
// as the account that applied it. It never waits: what is still there is in its Result, and a later pass goes on.
package teardown

import (
	"context"
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
	// For is the client of an account.
	For(ctx context.Context, account tenant.Account) (*tenant.Client, error)
}

// Teardown deletes for one StageSet.
type Teardown struct {
	Tenants     Tenants
	Owner       ownership.Owner
	Concurrency int
	Clock       clock.PassiveClock
	// Timeout is how long the deletion of a stage, by name, may take before the next one no longer waits for it.
	Timeout func(stage string) time.Duration
	// Patience is kept between passes.
	Patience *Patience
}

// Patience remembers since when the deletion of stages is waited for. Its zero value is ready; losing it gives every
// stage its timeout again.
type Patience struct {
	since map[inventory.ID]time.Time
}

// Reset forgets everything: nothing is waited for any more.
func (p *Patience) Reset() { clear(p.since) }

// first is when the deletion of a stage was first waited for.
func (p *Patience) first(id inventory.ID, now time.Time) time.Time {
	if p.since == nil {
		p.since = map[inventory.ID]time.Time{}
	}
	if _, known := p.since[id]; !known {
		p.since[id] = now
	}
	return p.since[id]
}

// Result says what became of the leftovers. Everything that is neither unseen nor an orphan is gone or meant to be kept.
type Result struct {
	// Unseen are the objects that were not yet seen gone; they stay in the inventory.
	Unseen map[inventory.Key]bool
	// Waiting are those of them that are being deleted.
	Waiting []inventory.Key
	// Orphans stay in the cluster although they should be deleted, because the account that could delete them is gone.
	Orphans Orphans
	// Failed are the objects that could not be deleted.
	Failed []prune.Failure
}

// Leftovers deletes what the book records and no stage of the release renders any more. It leaves the book as it is.
func (t Teardown) Leftovers(ctx context.Context, book *store.Book, desired map[inventory.Key]bool) Result {
	return t.run(ctx, inventory.Leftovers(book.Records(), desired))
}

// Everything deletes all that the book records, and takes out of it what was seen gone.
func (t Teardown) Everything(ctx context.Context, book *store.Book) (Result, error) {
	result := t.run(ctx, inventory.Leftovers(book.Records(), nil))
	for _, record := range inventory.Shrink(book.Records(), nil, result.Unseen) {
		var err error
		if len(record.Entries) == 0 {
			err = book.Drop(ctx, record.ID())
		} else {
			err = book.Save(ctx, record)
		}
		if err != nil {
			return result, err
		}
	}
	return result, nil
}

// Release removes all of the book's inventories, whatever they record.
func Release(ctx context.Context, book *store.Book) error {
	for _, record := range book.Records() {
		if err := book.Drop(ctx, record.ID()); err != nil {
			return err
		}
	}
	return nil
}

// run deletes leftovers. It goes on to the next step only when the one before is done, failed or overdue.
func (t Teardown) run(ctx context.Context, leftovers []inventory.Leftover) Result {
	result := Result{Unseen: map[inventory.Key]bool{}, Orphans: Orphans{Why: "the account that applied them is gone"}}
	leftovers = slices.DeleteFunc(leftovers, func(l inventory.Leftover) bool { return !l.Prune })
	for _, leftover := range leftovers {
		result.Unseen[inventory.EntryKey(leftover.Entry)] = true
	}
	for _, step := range prune.Plan(leftovers) {
		if !t.step(ctx, step, &result) {
			break
		}
	}
	return result
}

// step deletes one step's entries; it returns false when the next step has to wait.
func (t Teardown) step(ctx context.Context, step prune.Step, result *Result) bool {
	client, err := t.Tenants.For(ctx, tenant.Account{
		Namespace: t.Owner.Namespace, Name: step.Record.Target.ServiceAccountName,
	})
	if err != nil {
		t.unreachable(step, err, result)
		return true
	}
	outcome := prune.Run(ctx, client, t.Owner, step, t.Concurrency)
	for _, key := range slices.Concat(outcome.Gone, outcome.Kept) {
		delete(result.Unseen, key)
	}
	result.Waiting = append(result.Waiting, outcome.Waiting...)
	result.Failed = append(result.Failed, outcome.Failed...)
	if len(outcome.Waiting) == 0 {
		return true
	}
	now := t.Clock.Now()
	return now.Sub(t.Patience.first(step.Record, now)) > t.Timeout(step.Record.Stage)
}

// unreachable notes a step whose account cannot be used: if it is gone, nobody can delete as it any more.
func (t Teardown) unreachable(step prune.Step, err error, result *Result) {
	for _, entry := range step.Entries {
		key := inventory.EntryKey(entry)
		if failure.From(err).Reason == v1.ReasonServiceAccountNotFound {
			delete(result.Unseen, key)
			result.Orphans.Keys = append(result.Orphans.Keys, key)
			continue
		}
		result.Failed = append(result.Failed, prune.Failure{Key: key, Err: err})
	}
}
