package pipeline

import (
	"context"
	"fmt"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/tenant"
)

// Pass is what the requests of one pass to other clusters have in common.
type Pass = tenant.Pass

// AccountName is the account that a stage is applied as; empty if neither the stage nor the StageSet names one.
func AccountName(set *v1.StageSet, stage v1.Stage) string {
	if stage.ServiceAccountName != "" {
		return stage.ServiceAccountName
	}
	return set.Spec.ServiceAccountName
}

// AccountOf is the StageSet's own account, which reads what its spec names besides sources.
func AccountOf(set *v1.StageSet) tenant.Account {
	return tenant.Account{Namespace: set.Namespace, Name: set.Spec.ServiceAccountName}
}

// accounts finds the cluster that the StageSet is applied to, and what each stage reads and is applied with.
func (p *Pipeline) accounts(ctx context.Context, set *v1.StageSet) (Pinned, error) {
	pinned := Pinned{Stages: make([]PinnedStage, len(set.Spec.Stages))}
	reference, err := tenant.ReferenceOf(set)
	if err != nil {
		return pinned, err
	}
	if pinned.Destination, err = p.Tenants.Destination(ctx, reference); err != nil {
		return pinned, err
	}
	var problems []error
	for i, stage := range set.Spec.Stages {
		pinned.Stages[i].Stage = stage
		account := tenant.Account{Namespace: set.Namespace, Name: AccountName(set, stage)}
		if pinned.Stages[i].Local, err = p.Tenants.Local(ctx, account); err == nil {
			pinned.Stages[i].Target, err = p.Tenants.Target(ctx, pinned.Destination, account)
		}
		if err != nil {
			problems = append(problems, accountFailure(err, stage))
		}
	}
	return pinned, failure.Join(problems...)
}

// accountFailure says how a stage that names no account comes to one.
func accountFailure(err error, stage v1.Stage) error {
	failed := failure.From(err).InStage(stage.Name)
	if failed.Reason == v1.ReasonServiceAccountRequired {
		failed.Err = fmt.Errorf("stage %s: set spec.serviceAccountName or the stage's serviceAccountName: %w",
			stage.Name, failed.Err)
	}
	return failed
}

// RecordIDs are the records that the stages are applied under, in stage order.
func (p Pinned) RecordIDs() []inventory.ID {
	ids := make([]inventory.ID, 0, len(p.Stages))
	for _, stage := range p.Stages {
		ids = append(ids, inventory.ID{
			Stage: stage.Stage.Name, Target: p.Destination.Target(stage.Target.Account().Name),
		})
	}
	return ids
}

// Recorded are the entries of all records of the cluster that is applied to.
func (p Pinned) Recorded(records []inventory.Record) map[inventory.Key]v1.InventoryEntry {
	all := map[inventory.Key]v1.InventoryEntry{}
	for _, record := range records {
		if record.Target.Cluster != p.Destination.Cluster() {
			continue
		}
		for key, entry := range record.Entries {
			// The entry that knows more wins: an object that moved is recorded twice until the run is over.
			if known, twice := all[key]; !twice || known.RenderedHash == "" {
				all[key] = entry
			}
		}
	}
	return all
}
