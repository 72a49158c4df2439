// Package preflight makes every check that needs the target before the first write: what is live, what changed, and
// whether the API server would take it, as the account that will apply it. Its result, Cleared, is the only thing that
// package apply accepts. It never writes: every apply it sends is a dry-run.
package preflight

import (
	"context"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/drift"
	"github.com/stageset/stageset/reconciler/health"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/ownership"
	"github.com/stageset/stageset/reconciler/tenant"
)

// Target is a cluster as a stage's account sees it.
type Target interface {
	ownership.Target
	drift.Reader
	Account
}

// Account is what applying needs of an account besides.
type Account interface {
	// Scope says whether objects of the kind live in namespaces, and whether the cluster serves it in any version.
	Scope(ctx context.Context, kind schema.GroupKind) (namespaced, known bool, err error)
	// Delete deletes one object; gone is true when the answer says that it no longer exists.
	Delete(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string, options tenant.DeleteOptions) (gone bool,
		err error)
	Rights
}

// Rendered is one object of a stage: placed, stamped with its owner, and hashed.
type Rendered struct {
	Desired *unstructured.Unstructured
	// Origin is where the artifact defines it: file and line.
	Origin string
	// Hash is its rendered hash.
	Hash string
}

// Stage is one stage of a run as it comes from the build.
type Stage struct {
	Name string
	// Account is whom Target acts as.
	Account tenant.Account
	Target  Target
	Objects []Rendered
	// Prunes is true when the stage deletes what leaves it.
	Prunes bool
	// Ready are the stage's ready checks, namespaces filled in; nil if it has none.
	Ready *v1.ReadyChecks
	// Conflicts says what happens to objects that would have to be made anew.
	Conflicts Conflicts
}

// Input is what one preflight covers: all stages of a StageSet.
type Input struct {
	Applier ownership.Applier
	// Recorded are the entries of all the StageSet's inventories.
	Recorded map[inventory.Key]v1.InventoryEntry
	Stages   []Stage
	// Leaving is what is deleted after the last stage.
	Leaving []Leaving
	// Size is the size of all objects, in bytes as JSON.
	Size int64
	// Concurrency bounds the dry-runs that are under way at once.
	Concurrency int
	// Applied leaves out whatever was not applied as it is rendered: what is left can only have drifted.
	Applied bool
	// Loops remembers what drifts again and again; nil if nobody does.
	Loops *Loops
}

// Object is a rendered object with what the preflight found out about it.
type Object struct {
	rendered Rendered
	key      inventory.Key
	state    drift.State
	found    *drift.Found
	// loop is what somebody does to the object again and again, whether it is corrected in this pass or not.
	loop     *drift.Found
	live     *drift.Live
	verified bool
	waitsFor string
	wave     int
	gate     bool
	// recreate and kept are what became of an object that cannot be changed.
	recreate, kept bool
	// inherits is true when what others left on the live object has to be taken over first, and outdated when entries of its
	// managedFields have to be brought up to date.
	inherits, outdated bool
	// unfit is true for an object of which it is known without a dry-run that the API server refuses it.
	unfit bool
	// lacks are the permissions that the account does not have, and gift is where the release may give them to it.
	lacks tenant.Permissions
	gift  *gift
}

// Desired is the object as it will be applied. It must not be changed.
func (o *Object) Desired() *unstructured.Unstructured { return o.rendered.Desired }

// Hash is the object's rendered hash.
func (o *Object) Hash() string { return o.rendered.Hash }

// Key is the object's key.
func (o *Object) Key() inventory.Key { return o.key }

// Wave is the object's place in its stage: lower waves are applied first.
func (o *Object) Wave() int { return o.wave }

// Gate is true when no later wave may begin before the object is healthy: what a definition defines cannot be applied
// before it is established, and an object may ask for another one by annotation.
func (o *Object) Gate() bool { return o.gate }

// Changed is true when the object has to be written.
func (o *Object) Changed() bool { return o.state != drift.Unchanged }

// LiveUID is the UID of the live object that the preflight saw; empty if it saw none.
func (o *Object) LiveUID() types.UID {
	if o.live == nil {
		return ""
	}
	return o.live.UID
}

// Recreates is the UID of the live object that has to be deleted before this one can be applied; empty for an object that is
// changed in place, or new.
func (o *Object) Recreates() types.UID {
	if !o.recreate {
		return ""
	}
	return o.live.UID
}

// Inherits is true for an object that others may have left something on, which has to be taken over before it is applied.
func (o *Object) Inherits() bool { return o.inherits }

// Outdated is true for an object that cannot be dry-run before its managedFields are updated.
func (o *Object) Outdated() bool { return o.outdated }

// Kept is true for an object that is not as it is rendered, and stays so, because the stage's conflicts say so.
func (o *Object) Kept() bool { return o.kept }

// Drift is what somebody else did to the object since it was applied as it is rendered now; nil if it is as it was, or if
// what is rendered has changed.
func (o *Object) Drift() *drift.Found { return o.found }

// Deferred is true when the dry-run has to wait for something that the release itself creates earlier.
func (o *Object) Deferred() bool { return o.waitsFor != "" }

// Entry is the object's inventory entry before this run writes it: as it was recorded, or, if the recorded object is not
// there any more, a new one with the UID that the preflight saw, if it saw an object.
func (o *Object) Entry(recorded map[inventory.Key]v1.InventoryEntry) v1.InventoryEntry {
	gvk := o.rendered.Desired.GroupVersionKind()
	entry := v1.InventoryEntry{
		Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Namespace: o.key.Namespace, Name: o.key.Name,
		Keep: o.Keep(),
	}
	entry.UID = o.LiveUID()
	if known, found := recorded[o.key]; found && (known.UID == entry.UID || known.UID == "") {
		known.Left = false // it is back
		return o.refreshed(known)
	}
	return entry
}

// Keep is true when the object asks never to be deleted.
func (o *Object) Keep() bool { return ownership.Protected(o.rendered.Desired) }

// refreshed has the numbers of a live object that a dry-run found to be as applied, so that the next pass need not ask
// again.
func (o *Object) refreshed(entry v1.InventoryEntry) v1.InventoryEntry {
	if o.verified {
		entry.ResourceVersion, entry.Generation = o.live.ResourceVersion, o.live.Generation
	}
	return entry
}

// Health is the object's health as the preflight saw it; an object that does not exist yet is Progressing.
func (o *Object) Health() health.Result {
	if o.live == nil {
		return health.Result{Verdict: health.Progressing, Message: "does not exist yet"}
	}
	return o.live.Health
}

// ClearedStage is a stage whose objects passed the preflight.
type ClearedStage struct {
	// number is the stage's place among all stages, from 0.
	number  int
	name    string
	account tenant.Account
	target  Target
	judge   *health.Judge
	checks  []ReadyCheck
	// unread is what the account may not look at of the checks.
	unread    tenant.Permissions
	conflicts Conflicts
	prunes    bool
	objects   []*Object
}

// Name is the stage's name.
func (s ClearedStage) Name() string { return s.name }

// Target is the cluster as the stage's account sees it.
func (s ClearedStage) Target() Target { return s.target }

// Objects are the stage's objects, ordered by wave and within a wave by key.
func (s ClearedStage) Objects() []*Object { return s.objects }

// Checks are the objects that the stage waits for and does not apply.
func (s ClearedStage) Checks() []ReadyCheck { return s.checks }

// Gated is true when an object of the waves from the first, up to and without the second, is a gate.
func (s ClearedStage) Gated(from, to int) bool {
	return slices.ContainsFunc(s.objects, func(o *Object) bool { return o.Gate() && o.wave >= from && o.wave < to })
}

// Cleared is a release that may be applied.
type Cleared struct {
	stages  []ClearedStage
	applier ownership.Applier
	size    int64
	loops   *Loops
}

// Size is the size of all objects, in bytes as JSON.
func (c Cleared) Size() int64 { return c.size }

// Applier applies the release's objects.
func (c Cleared) Applier() ownership.Applier { return c.applier }

// Stages are the stages in order.
func (c Cleared) Stages() []ClearedStage { return c.stages }

// Check runs the preflight of all stages. Its error is a *failure.Error that names every problem of every stage, or the
// first one that says that the target cannot be asked.
func Check(ctx context.Context, in Input) (Cleared, error) {
	stages, unseen, err := observe(ctx, in)
	if err != nil {
		return Cleared{}, err
	}
	problems := append(order(stages), repeated(stages)...)
	if in.Applied {
		problems = nil // it was applied as it is, and what an object depends on may have been left out
	}
	deferObjects(stages)
	lacking, err := lacks(ctx, in, stages)
	if err == nil && len(lacking) == 0 {
		err = unseen
	}
	if err != nil {
		return Cleared{}, err
	}
	if unseen == nil {
		refused, err := dryRun(ctx, in, stages)
		if err != nil {
			return Cleared{}, err
		}
		problems = append(problems, refused...)
	}
	if err := refuse(ctx, lacking, problems); err != nil {
		return Cleared{}, err
	}
	in.Loops.end()
	return Cleared{stages: stages, applier: in.Applier, size: in.Size, loops: in.Loops}, nil
}

// observe looks at the live state of everything that is recorded, one account at a time, and classifies all objects. unseen
// is the failure of an account that may not look, whose objects then are as if they did not exist.
func observe(ctx context.Context, in Input) (stages []ClearedStage, unseen, err error) {
	stages, err = open(ctx, in)
	if err != nil {
		return nil, nil, err
	}
	snapshots := map[tenant.Account]drift.Snapshot{}
	for i := range stages {
		stage := &stages[i]
		snapshot, seen := snapshots[stage.account]
		if !seen {
			var err error
			snapshot, err = drift.Observe(ctx, stage.target, in.Applier.Owner, recordedOf(in, stages, stage.account))
			switch {
			case apierrors.IsForbidden(err):
				unseen = cannotAsk(stage.name, stage.account, err)
			case err != nil:
				return nil, nil, cannotAsk(stage.name, stage.account, err)
			}
			snapshots[stage.account] = snapshot
		}
		stage.classify(in, in.Stages[i].Objects, snapshot)
	}
	return stages, unseen, nil
}

// recordedOf are the recorded entries of all objects that stages with the account render.
func recordedOf(in Input, stages []ClearedStage, account tenant.Account) []drift.Wanted {
	recorded := map[inventory.Key]drift.Wanted{}
	for i, stage := range in.Stages {
		if stage.Account != account {
			continue
		}
		for _, rendered := range stage.Objects {
			key := inventory.KeyOf(rendered.Desired)
			if entry, known := in.Recorded[key]; known {
				entry.Version = rendered.Desired.GroupVersionKind().Version
				recorded[key] = drift.Wanted{InventoryEntry: entry, Judge: stages[i].judge}
			}
		}
	}
	keys := slices.SortedFunc(maps.Keys(recorded), inventory.Compare)
	wanted := make([]drift.Wanted, 0, len(keys))
	for _, key := range keys {
		wanted = append(wanted, recorded[key])
	}
	return wanted
}

// compare finds out what is known of the object without asking about it.
func (o *Object) compare(recorded v1.InventoryEntry) {
	o.state = drift.Compare(o.rendered.Desired, o.rendered.Hash, recorded, o.live)
	switch o.state {
	case drift.Missing, drift.Replaced, drift.Disowned:
		if recorded.UID != "" && recorded.RenderedHash == o.rendered.Hash {
			o.found = &drift.Found{Key: o.key, State: o.state}
		}
	}
}

// classify makes the stage's objects of what it renders.
func (s *ClearedStage) classify(in Input, objects []Rendered, snapshot drift.Snapshot) {
	for _, rendered := range objects {
		object := &Object{rendered: rendered, key: inventory.KeyOf(rendered.Desired)}
		recorded := in.Recorded[object.key]
		if in.Applied && recorded.RenderedHash != rendered.Hash {
			continue
		}
		if live, found := snapshot[object.key]; found {
			object.live = &live
		}
		object.compare(recorded)
		s.objects = append(s.objects, object)
	}
	slices.SortFunc(s.objects, func(a, b *Object) int { return inventory.Compare(a.key, b.key) })
}
