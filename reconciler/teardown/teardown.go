// Package teardown deletes what left a release, and all of it when its StageSet is deleted: stage by stage in reverse, each
// as the account that applied it. It never waits: what is still there is in its Result, and a later pass goes on.
package teardown

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/inventory"
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
	// Overdue is true for a stage whose deletion has taken longer than its timeout: the next stage then no longer waits for
	// it.
	Overdue func(inventory.ID) bool
}

// Result says what became of the leftovers. Everything that is neither unseen nor an orphan is gone or meant to be kept.
type Result struct {
	// Unseen are the objects that were not yet seen gone; they stay in the inventory.
	Unseen map[inventory.Key]bool
	// Waiting are those of them that are being deleted.
	Waiting []inventory.Key
	// Orphans stay in the cluster although they should be deleted, because the account that could delete them is gone.
	Orphans []inventory.Key
	// Failed are the objects that could not be deleted.
	Failed []prune.Failure
	// Stages are the stages that objects are waited for in.
	Stages []inventory.ID
}

// Run deletes leftovers. It goes on to the next step only when the one before is done, failed or overdue.
func (t Teardown) Run(ctx context.Context, leftovers []inventory.Leftover) Result {
	result := Result{Unseen: map[inventory.Key]bool{}}
	leftovers = slices.DeleteFunc(slices.Clone(leftovers), func(l inventory.Leftover) bool { return !l.Prune })
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
	result.Stages = append(result.Stages, step.Record)
	return t.Overdue(step.Record)
}

// unreachable notes a step whose account cannot be used: if it is gone, nobody can delete as it any more.
func (t Teardown) unreachable(step prune.Step, err error, result *Result) {
	for _, entry := range step.Entries {
		key := inventory.EntryKey(entry)
		if failure.From(err).Reason == v1.ReasonServiceAccountNotFound {
			delete(result.Unseen, key)
			result.Orphans = append(result.Orphans, key)
			continue
		}
		result.Failed = append(result.Failed, prune.Failure{Key: key, Err: err})
	}
}

// maxNamed is how many objects a message names before it counts.
const maxNamed = 20

// Names lists keys for a message; at most twenty, then a count.
func Names(keys []inventory.Key) string {
	names := make([]string, 0, maxNamed+1)
	for _, key := range keys[:min(len(keys), maxNamed)] {
		names = append(names, key.String())
	}
	if more := len(keys) - maxNamed; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// Failure is the result as a *failure.Error with the reason; nil if nothing failed.
func (r Result) Failure(reason string) error {
	if len(r.Failed) == 0 {
		return nil
	}
	kind := failure.Stalled
	texts := make([]string, 0, maxNamed+1)
	for i, failed := range r.Failed {
		forbidden := apierrors.IsForbidden(failed.Err)
		if !forbidden {
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
