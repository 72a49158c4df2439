package tenant

import (
	"context"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
)

// Pass is one pass over a StageSet, as far as its requests to other clusters have something in common. It is in the context
// of them all; a context without one is that of somebody who waits as long as it takes, and whom nobody wakes.
type Pass struct {
	// StageSet is woken when a cluster that the pass did not wait for has answered, or has not.
	StageSet types.NamespacedName
	// Patient has the pass wait for clusters that are slow. Another pass ends at the first of them: it is postponed.
	Patient bool

	postponed, slow atomic.Bool
}

type passKey struct{}

// Context is a context for the requests of the pass.
func (p *Pass) Context(parent context.Context) context.Context {
	return context.WithValue(parent, passKey{}, p)
}

// passOf is the pass of a context; nil if there is none.
func passOf(ctx context.Context) *Pass {
	pass, _ := ctx.Value(passKey{}).(*Pass)
	return pass
}

// Postponed is true when the pass has met a cluster that it does not wait for. What it has found out is nothing then, and
// what it has done is what a later one goes on from.
func (p *Pass) Postponed() bool { return p.postponed.Load() }

// Slow is true when the pass has met a cluster that is slow.
func (p *Pass) Slow() bool { return p.slow.Load() }

// hasEnded is true when the pass sends no more requests to other clusters.
func (p *Pass) hasEnded() bool { return p != nil && p.postponed.Load() }

// hurries is true when the pass does not wait for what is slow.
func (p *Pass) hurries() bool { return p != nil && !p.Patient }

// fork is a pass as patient for requests that others wait for too, who join what it meets; nil if p is.
func (p *Pass) fork() *Pass {
	if p == nil {
		return nil
	}
	return &Pass{StageSet: p.StageSet, Patient: p.Patient}
}

// join notes what another pass has met.
func (p *Pass) join(other *Pass) {
	if p == nil || other == nil {
		return
	}
	if other.slow.Load() {
		p.slow.Store(true)
	}
	if other.postponed.Load() {
		p.postponed.Store(true)
	}
}

// met notes a cluster that is slow; true if the pass does not wait for it.
func (p *Pass) met() bool {
	if p == nil {
		return false
	}
	p.slow.Store(true)
	if p.Patient {
		return false
	}
	p.postponed.Store(true)
	return true
}
