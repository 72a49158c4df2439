package preflight

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Asking makes requests about objects, several at once, and collects what the API server refuses. An answer that says that it
// cannot be asked at all ends the others.
type Asking struct {
	ctx   context.Context
	group *errgroup.Group

	mu       sync.Mutex
	problems []Problem
}

// NewAsking has up to concurrency requests under way at once, and one at least.
func NewAsking(ctx context.Context, concurrency int) *Asking {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(concurrency, 1))
	return &Asking{ctx: ctx, group: group}
}

// Ask makes a request about an object of a stage, once there is room for it.
func (a *Asking) Ask(stage ClearedStage, object *Object, request func(context.Context, *Object) error) {
	a.group.Go(func() error {
		err := request(a.ctx, object)
		if err == nil {
			return nil
		}
		if !IsRefusal(err) {
			return CannotAsk(stage, err)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.problems = append(a.problems, stage.Problem(object, err))
		return nil
	})
}

// Wait waits for all answers. Its error is a *failure.Error that says that the target cannot be asked.
func (a *Asking) Wait() ([]Problem, error) {
	err := a.group.Wait()
	return a.problems, err
}
