package pipeline

import (
	"cmp"
	"context"
	"slices"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/preflight"
	"github.com/stageset/stageset/reconciler/source"
	"github.com/stageset/stageset/reconciler/tenant"
)

// Pins are the pinned sources of a release, by stage.
type Pins map[string]source.Pin

// Pins are what the release was pinned to.
func (p Pinned) Pins() Pins {
	pins := Pins{}
	for _, stage := range p.Stages {
		pins[stage.Stage.Name] = stage.Pin
	}
	return pins
}

// Drifts is what others did to applied objects.
type Drifts = preflight.Drifts

// Maintained is what is at hand of the release that was applied last.
type Maintained struct {
	// Set is the StageSet with the stages that were applied, and Pinned are their sources.
	Set    *v1.StageSet
	Pinned Pinned
	// Cleared has what renders as it was applied.
	Cleared preflight.Cleared
}

// Maintain prepares the release that was applied last, from its pins and what is cached of them, for the time when nothing
// newer can be applied. The sources themselves are not read. What does not render as it was applied, because spec or values
// have changed, is left out.
func (p *Pipeline) Maintain(
	ctx context.Context, set *v1.StageSet, pins Pins, review Review, memory Memory,
) (Maintained, error) {
	set = set.DeepCopy()
	set.Spec.Stages = slices.DeleteFunc(set.Spec.Stages, func(stage v1.Stage) bool {
		_, applied := pins[stage.Name]
		return !applied
	})
	pinned, err := p.accounts(ctx, set)
	if err != nil {
		return Maintained{}, err
	}
	for i := range pinned.Stages {
		stage := &pinned.Stages[i]
		stage.Pin = pins[stage.Stage.Name]
		review.Source(ctx, stage.Stage.Name, stage.Pin)
	}
	if err := review.Err(); err != nil {
		return Maintained{}, err
	}
	if err := p.variables(ctx, set, &pinned); err != nil {
		return Maintained{}, err
	}
	in, err := p.compose(ctx, set, pinned, review, memory.Room)
	if err != nil {
		return Maintained{}, err
	}
	in.Applied, in.Loops = true, memory.Loops
	ids := pinned.RecordIDs()
	in.Recorded = pinned.Recorded(slices.DeleteFunc(slices.Clone(memory.Records), func(record inventory.Record) bool {
		return !slices.Contains(ids, record.ID()) // another account has applied it
	}))
	cleared, err := preflight.Check(ctx, in)
	return Maintained{Set: set, Pinned: pinned, Cleared: cleared}, err
}

// Detect finds out what others did to the recorded objects that are not in known, as the accounts that applied them.
func (p *Pipeline) Detect(
	ctx context.Context, set *v1.StageSet, records []inventory.Record, known map[inventory.Key]bool,
) (Drifts, error) {
	var (
		all      Drifts
		problems []error
	)
	for _, record := range records {
		found, err := p.detect(ctx, set, record, known)
		all = all.And(found)
		problems = append(problems, err)
	}
	return all, failure.Join(problems...)
}

func (p *Pipeline) detect(
	ctx context.Context, set *v1.StageSet, record inventory.Record, known map[inventory.Key]bool,
) (Drifts, error) {
	client, err := p.recorded(ctx, set, record.Target)
	if err != nil {
		return Drifts{}, err
	}
	var entries []v1.InventoryEntry
	for _, key := range record.Keys() {
		entry := record.Entries[key]
		if known[key] || entry.UID == "" || entry.RenderedHash == "" {
			continue // it may never have been made or adopted, or has left with an earlier release
		}
		version, err := client.Version(ctx, key.GroupKind())
		if err != nil {
			return Drifts{}, err
		}
		entry.Version = cmp.Or(version, entry.Version) // what it was applied as may be served no more
		entries = append(entries, entry)
	}
	return preflight.Detect(ctx, client, Owner(set), entries)
}

// recorded is the client of what an inventory records.
func (p *Pipeline) recorded(ctx context.Context, set *v1.StageSet, target v1.InventoryTarget) (*tenant.Client, error) {
	to, err := p.Tenants.Destination(ctx, tenant.Recorded(AccountOf(set), target))
	if err != nil {
		return nil, err
	}
	return p.Tenants.Target(ctx, to, tenant.Account{Namespace: set.Namespace, Name: target.ServiceAccountName})
}
