package preflight

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stageset/stageset/reconciler/drift"
)

// dryRun asks the API server about every changed object of every stage, as the stage's account, and collects all that
// it refuses. An object that somebody else wrote since our last apply, but that a dry-run finds as it should be, is
// unchanged from then on.
func dryRun(ctx context.Context, in Input, stages []ClearedStage) ([]Problem, error) {
	var (
		mu       sync.Mutex
		problems []Problem
	)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(in.Concurrency, 1))
	for _, stage := range stages {
		for _, object := range stage.objects {
			if !object.Changed() || object.Deferred() {
				continue
			}
			group.Go(func() error {
				err := check(ctx, in, stage, object)
				if err == nil {
					return nil
				}
				if !IsRefusal(err) {
					return cannotAsk(stage.name, stage.account, err)
				}
				mu.Lock()
				defer mu.Unlock()
				problems = append(problems, stage.Problem(object, err))
				return nil
			})
		}
	}
	err := group.Wait()
	return problems, err
}

func check(ctx context.Context, in Input, stage ClearedStage, object *Object) error {
	if object.state == drift.Suspect {
		return verify(ctx, in, stage, object)
	}
	answer, err := in.Applier.Apply(ctx, stage.target, object.Desired(), true)
	if err != nil {
		return err
	}
	// A dry-run that would create has no resourceVersion; one that has it found an object that no inventory names.
	if object.state == drift.Missing && answer.GetResourceVersion() != "" {
		live := stage.Live(ctx, answer)
		object.live, object.state = &live, drift.Changed
	}
	return nil
}

// maxVerifications is how often a suspect is looked at that others write at the same time.
const maxVerifications = 3

// verify compares a suspect with what an apply would make of it. Both have to be of one moment: what others write between
// the two requests is no drift.
func verify(ctx context.Context, in Input, stage ClearedStage, object *Object) error {
	desired := object.Desired()
	var live, answer *unstructured.Unstructured
	for range maxVerifications {
		var err error
		live, err = stage.target.Get(ctx, desired.GroupVersionKind(), object.key.Namespace, object.key.Name)
		if apierrors.IsNotFound(err) {
			object.live, object.state = nil, drift.Missing
			object.found = &drift.Found{Key: object.key, State: drift.Missing}
			return check(ctx, in, stage, object)
		}
		if err != nil {
			return err
		}
		if answer, err = in.Applier.Apply(ctx, stage.target, desired, true); err != nil {
			return err
		}
		if answer.GetResourceVersion() == live.GetResourceVersion() {
			break
		}
	}
	if drift.Same(live, answer) {
		seen := stage.Live(ctx, live)
		object.live, object.state, object.verified = &seen, drift.Unchanged, true
		return nil
	}
	found := drift.Explain(live, answer, in.Applier.Owner.FieldManager())
	object.found = &found
	return nil
}

// DryRun checks one deferred object once what it waited for exists. Its error is the API server's refusal (IsRefusal), or a
// *failure.Error that says that the target cannot be asked.
func (c Cleared) DryRun(ctx context.Context, stage ClearedStage, object *Object) error {
	_, err := c.send(ctx, stage, object, true)
	return err
}

// Apply writes one object; errors are those of DryRun.
func (c Cleared) Apply(ctx context.Context, stage ClearedStage, object *Object) (*unstructured.Unstructured, error) {
	return c.send(ctx, stage, object, false)
}

func (c Cleared) send(ctx context.Context, stage ClearedStage, object *Object, dry bool) (
	*unstructured.Unstructured, error,
) {
	answer, err := c.applier.Apply(ctx, stage.target, object.Desired(), dry)
	if err != nil && !IsRefusal(err) {
		return nil, cannotAsk(stage.name, stage.account, err)
	}
	return answer, err
}
