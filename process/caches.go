package process

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
)

// CacheCheck is a readiness check for the caches of a manager. It has to be added to the manager, too, which starts it when all
// caches that anybody has asked for until then are synced, whether or not it leads.
type CacheCheck struct{ synced atomic.Bool }

// Start notes that the caches are synced.
func (c *CacheCheck) Start(ctx context.Context) error {
	c.synced.Store(true)
	<-ctx.Done()
	return nil
}

// NeedLeaderElection is false: every replica has caches.
func (c *CacheCheck) NeedLeaderElection() bool { return false }

// Ready fails until the caches are synced.
func (c *CacheCheck) Ready(*http.Request) error {
	if !c.synced.Load() {
		return errors.New("the caches are not synced yet")
	}
	return nil
}
