package preflight

import (
	"context"
	"slices"
	"time"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/drift"
	"github.com/stageset/stageset/reconciler/health"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/ownership"
)

// Running looks at what is applied where nothing but its inventory entries is at hand.
type Running struct {
	Owner ownership.Owner
	Now   time.Time
	// Known are objects of which what was applied is at hand: they are no Drift.
	Known map[inventory.Key]bool
}

// Seen is what a look at what is applied has found out.
type Seen struct {
	// Drifts is what others did to objects. What they changed is not known, nor whether it matters.
	Drifts Drifts
	// Health is the health of the objects that their stages wait for, and of the ready checks.
	Health health.Report
}

// And is what both have found out.
func (s Seen) And(other Seen) Seen {
	s.Drifts = s.Drifts.And(other.Drifts)
	s.Health.Failed = append(slices.Clip(s.Health.Failed), other.Health.Failed...)
	s.Health.Progressing = append(slices.Clip(s.Health.Progressing), other.Health.Progressing...)
	return s
}

// Withheld is what is seen without what the objects say of themselves, which may quote any field of them.
func (s Seen) Withheld() Seen {
	for _, items := range []*[]health.Item{&s.Health.Failed, &s.Health.Progressing} {
		*items = slices.Clone(*items)
		for i := range *items {
			(*items)[i].Result.Message = Withheld
		}
	}
	return s
}

// Withheld stands for what an API server or an object says where nobody can tell whether it quotes the value of a Secret.
const Withheld = "why is withheld: it may quote a value of a Secret that cannot be read any more"

// Look looks at the entries of a stage as its account. Objects of the stage are not needed. Its error is a *failure.Error.
func (r Running) Look(ctx context.Context, of Stage, entries []v1.InventoryEntry) (Seen, error) {
	checks, judge, err := ready(ctx, of)
	if err != nil {
		return Seen{}, err
	}
	wanted := make([]drift.Wanted, 0, len(entries))
	for _, entry := range entries {
		wanted = append(wanted, drift.Wanted{InventoryEntry: entry, Judge: judge})
	}
	snapshot, err := drift.Observe(ctx, of.Target, r.Owner, wanted)
	if err != nil {
		return Seen{}, cannotAsk(of.Name, of.Account, err)
	}
	seen := Seen{Drifts: r.drifts(entries, snapshot)}
	if of.Ready == nil || !of.Ready.DisableWait {
		for _, entry := range entries {
			key := inventory.EntryKey(entry)
			seen.Health.Add(key, healthOf(snapshot, key).At(r.Now))
		}
	}
	stage := ClearedStage{name: of.Name, account: of.Account, target: of.Target, judge: judge}
	for _, check := range checks {
		result, _, err := stage.LookAt(ctx, check)
		if err != nil {
			return Seen{}, err
		}
		seen.Health.Add(check.Key, result.At(r.Now))
	}
	return seen, nil
}

func healthOf(snapshot drift.Snapshot, key inventory.Key) health.Result {
	live, exists := snapshot[key]
	if !exists {
		return health.Result{Verdict: health.Progressing, Message: "does not exist"}
	}
	return live.Health
}

// drifts is what others did to the objects that are not known.
func (r Running) drifts(entries []v1.InventoryEntry, snapshot drift.Snapshot) Drifts {
	var found []drift.Found
	for _, entry := range entries {
		key := inventory.EntryKey(entry)
		if r.Known[key] {
			continue
		}
		var live *drift.Live
		if seen, exists := snapshot[key]; exists {
			live = &seen
		}
		if state := drift.Touched(entry, live); state != drift.Unchanged {
			found = append(found, drift.Found{Key: key, State: state})
		}
	}
	return summarize(found)
}
