package preflight

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stageset/stageset/reconciler/drift"
	"github.com/stageset/stageset/reconciler/ownership"
)

// dryRun asks the API server about every changed object of every stage, as the stage's account, and collects all that
// it refuses. An object that somebody else wrote since our last apply, but that a dry-run finds as it should be, is
// unchanged from then on.
func dryRun(ctx context.Context, in Input, stages []ClearedStage) ([]Problem, error) {
	asking := NewAsking(ctx, in.Concurrency)
	for _, stage := range stages {
		for _, object := range stage.objects {
			if object.Changed() && !object.Deferred() && !object.unfit {
				asking.Ask(stage, object, checker{applier: in.Applier, stage: stage, loops: in.Loops}.check)
			}
		}
	}
	return asking.Wait()
}

// checker dry-runs the objects of one stage.
type checker struct {
	applier ownership.Applier
	stage   ClearedStage
	loops   *Loops
}

// check finds out what has to be done about a changed object. Its error is a refusal (IsRefusal), or says that the target
// cannot be asked.
func (c checker) check(ctx context.Context, object *Object) error {
	object.recreate, object.outdated = false, false
	if object.state == drift.Suspect {
		return c.verify(ctx, object)
	}
	answer, err := c.dryRun(ctx, object)
	if apierrors.IsInternalError(err) && c.outdated(ctx, object) {
		return nil
	}
	if err != nil {
		return c.resolve(ctx, object, err)
	}
	// A dry-run that would create has no resourceVersion; one that has it found an object that no inventory names.
	if object.state == drift.Missing && answer.GetResourceVersion() != "" {
		live := c.stage.Live(ctx, answer)
		object.live, object.state = &live, drift.Changed
	}
	return nil
}

// dryRun applies an object as a dry-run, and notes what has to be done first if it is to be written.
func (c checker) dryRun(ctx context.Context, object *Object) (*unstructured.Unstructured, error) {
	desired := object.Desired()
	answer, err := c.applier.Apply(ctx, c.stage.target, desired, ownership.Request{DryRun: true, New: object.live == nil})
	if err == nil && answer.GetResourceVersion() != "" {
		object.inherits, err = c.applier.Inherits(ctx, c.stage.target, desired, answer)
	}
	return answer, err
}

// outdated is true for an object that the API server cannot apply because of what its managedFields have: the dry-run has to
// wait until that is mended, which is right before the object is written.
func (c checker) outdated(ctx context.Context, object *Object) bool {
	outdated, err := c.applier.Outdated(ctx, c.stage.target, object.Desired())
	if err != nil || !outdated {
		return false
	}
	object.outdated, object.waitsFor = true, "an update of its managedFields"
	return true
}

// maxVerifications is how often a suspect is looked at that others write at the same time.
const maxVerifications = 3

// verify compares a suspect with what an apply would make of it. Both have to be of one moment: what others write between
// the two requests is no drift. Of an object that never stands still, the status is left out, which no apply changes; one
// whose kind has none is left as it is, and looked at again in the next pass.
func (c checker) verify(ctx context.Context, object *Object) error {
	desired := object.Desired()
	var live, answer *unstructured.Unstructured
	for range maxVerifications {
		var err error
		live, err = c.stage.target.Get(ctx, desired.GroupVersionKind(), object.key.Namespace, object.key.Name)
		if apierrors.IsNotFound(err) {
			object.live, object.state = nil, drift.Missing
			object.found = &drift.Found{Key: object.key, State: drift.Missing}
			return c.check(ctx, object)
		}
		if err != nil {
			return err
		}
		answer, err = c.dryRun(ctx, object)
		if apierrors.IsInternalError(err) && c.outdated(ctx, object) {
			return nil
		}
		if err != nil {
			return c.resolve(ctx, object, err)
		}
		if answer.GetResourceVersion() == live.GetResourceVersion() {
			break
		}
	}
	seen := c.stage.Live(ctx, live)
	object.live = &seen
	if answer.GetResourceVersion() != live.GetResourceVersion() {
		if !c.stage.target.HasStatus(ctx, desired.GroupVersionKind()) {
			object.state = drift.Unchanged
			return nil
		}
		unstructured.RemoveNestedField(live.Object, "status")
		unstructured.RemoveNestedField(answer.Object, "status")
	}
	if drift.Same(live, answer) {
		object.state, object.verified = drift.Unchanged, true
		return nil
	}
	found := drift.Explain(live, answer, c.applier.Owner.FieldManager())
	looping, left := c.loops.drifts(found)
	if looping {
		object.loop = &found
	}
	if left {
		object.state = drift.Unchanged
		return nil
	}
	object.found = &found
	return nil
}

// DryRun checks one deferred object once what it waited for exists; it may turn out that there is nothing to write. Its
// error is the API server's refusal (IsRefusal), or a *failure.Error that says that the target cannot be asked.
func (c Cleared) DryRun(ctx context.Context, stage ClearedStage, object *Object) error {
	err := checker{applier: c.applier, stage: stage, loops: c.loops}.check(ctx, object)
	if err != nil && !IsRefusal(err) {
		return CannotAsk(stage, err)
	}
	return err
}
