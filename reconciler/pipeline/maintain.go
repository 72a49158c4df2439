package pipeline

import (
	"cmp"
	"context"
	"slices"
	"time"

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

// Cleared is a release that may be applied, with what it was made of: a StageSet, and the sources that it is pinned to.
type Cleared struct {
	preflight.Cleared
	Set    *v1.StageSet
	Pinned Pinned
}

// Maintain prepares the release that was applied last, from its pins and what is cached of them, for the time when nothing
// newer can be applied. The sources themselves are not read. What does not render as it was applied, because spec or values
// have changed, is left out, as are the stages that were not applied.
func (p *Pipeline) Maintain(
	ctx context.Context, set *v1.StageSet, pins Pins, review Review, memory Memory,
) (Cleared, error) {
	set = set.DeepCopy()
	set.Spec.Stages = slices.DeleteFunc(set.Spec.Stages, func(stage v1.Stage) bool {
		_, applied := pins[stage.Name]
		return !applied
	})
	pinned, err := p.accounts(ctx, set)
	if err != nil {
		return Cleared{}, err
	}
	for i := range pinned.Stages {
		stage := &pinned.Stages[i]
		stage.Pin = pins[stage.Stage.Name]
		review.Source(ctx, stage.Stage.Name, stage.Pin)
	}
	if err := review.Err(); err != nil {
		return Cleared{}, err
	}
	if err := p.variables(ctx, set, &pinned); err != nil {
		return Cleared{}, err
	}
	in, err := p.compose(ctx, set, pinned, review, memory.Room)
	if err != nil {
		return Cleared{}, err
	}
	in.Applied, in.Loops = true, memory.Loops
	ids := pinned.RecordIDs()
	in.Recorded = pinned.Recorded(slices.DeleteFunc(slices.Clone(memory.Records), func(record inventory.Record) bool {
		return !slices.Contains(ids, record.ID()) // another account has applied it
	}))
	cleared, err := p.check(ctx, in)
	return Cleared{Cleared: cleared, Set: set, Pinned: pinned}, err
}

// Seen is what a look at what is applied has found out.
type Seen = preflight.Seen

// Withheld stands for words that may quote the value of a Secret.
const Withheld = preflight.Withheld

// Look finds out how the release is that the records are of, as the accounts that applied it. Nothing of it has to be at
// hand. Of the objects in known what was applied is at hand; they are no drift.
func (p *Pipeline) Look(
	ctx context.Context, set *v1.StageSet, records []inventory.Record, known map[inventory.Key]bool, now time.Time,
) (Seen, error) {
	var (
		all      Seen
		problems []error
	)
	running := preflight.Running{Owner: Owner(set), Now: now, Known: known}
	for _, record := range records {
		seen, err := p.look(ctx, set, record, running)
		all = all.And(seen)
		problems = append(problems, err)
	}
	return all, failure.Join(problems...)
}

func (p *Pipeline) look(
	ctx context.Context, set *v1.StageSet, record inventory.Record, running preflight.Running,
) (Seen, error) {
	client, err := p.recorded(ctx, set, record.Target)
	if err != nil {
		return Seen{}, failure.From(err).InStage(record.Stage)
	}
	var entries []v1.InventoryEntry
	for _, key := range record.Keys() {
		entry := record.Entries[key]
		if entry.UID == "" || entry.RenderedHash == "" {
			continue // it may never have been made or adopted, or has left with an earlier release
		}
		version, err := client.Version(ctx, key.GroupKind())
		if err != nil {
			return Seen{}, err
		}
		entry.Version = cmp.Or(version, entry.Version) // what it was applied as may be served no more
		entries = append(entries, entry)
	}
	stage := preflight.Stage{Name: record.Stage, Account: client.Account(), Target: client}
	for _, spec := range set.Spec.Stages {
		if spec.Name == record.Stage && len(entries) > 0 {
			stage.Ready = readyChecks(set, spec)
		}
	}
	return running.Look(ctx, stage, entries)
}

// recorded is the client of what an inventory records.
func (p *Pipeline) recorded(ctx context.Context, set *v1.StageSet, target v1.InventoryTarget) (*tenant.Client, error) {
	to, err := p.Tenants.Destination(ctx, tenant.Recorded(AccountOf(set), target))
	if err != nil {
		return nil, err
	}
	return p.Tenants.Target(ctx, to, tenant.Account{Namespace: set.Namespace, Name: target.ServiceAccountName})
}
