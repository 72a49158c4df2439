package tenant

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// namespaceShare is the part of all requests in flight that the accounts of one namespace may have: one in so many.
const namespaceShare = 4

// turns are the places for requests in flight. A request takes one of its namespace's before one of all, so that a tenant
// whose own webhook or aggregated API hangs waits for itself, and leaves most places to others.
type turns struct {
	all *semaphore.Weighted
	// each is how many places a namespace has.
	each int64

	mu sync.Mutex
	// namespaces has those that requests are in or wait for, and no others.
	namespaces map[string]*turn
}

// turn are the places of one namespace.
type turn struct {
	places *semaphore.Weighted
	// users are those who have a place or wait for one; turns.mu guards it.
	users int
}

func newTurns(limit int64) *turns {
	return &turns{
		all: semaphore.NewWeighted(limit), each: max(1, limit/namespaceShare), namespaces: map[string]*turn{},
	}
}

// take waits for a place for a request of an account in the namespace; done gives it back. The error is the context's.
func (t *turns) take(ctx context.Context, namespace string) (done func(), err error) {
	own := t.join(namespace)
	if err := own.places.Acquire(ctx, 1); err != nil {
		t.leave(namespace, own)
		return nil, err
	}
	if err := t.all.Acquire(ctx, 1); err != nil {
		own.places.Release(1)
		t.leave(namespace, own)
		return nil, err
	}
	return func() {
		t.all.Release(1)
		own.places.Release(1)
		t.leave(namespace, own)
	}, nil
}

func (t *turns) join(namespace string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.namespaces[namespace]
	if own == nil {
		own = &turn{places: semaphore.NewWeighted(t.each)}
		t.namespaces[namespace] = own
	}
	own.users++
	return own
}

func (t *turns) leave(namespace string, own *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(t.namespaces, namespace)
	}
}
