package app

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

var errDraining = errors.New("this replica is stopping")

// drain is the orderly end of the program: readiness goes first, so that no new connection comes, requests are served on
// for a while, and only then is everything stopped.
type drain struct {
	delay  time.Duration
	clock  clock.Clock
	begun  atomic.Bool
	logger logr.Logger
}

// Begun reports whether the program is about to stop.
func (d *drain) Begun() bool { return d.begun.Load() }

// Ready is a readiness check that fails from the beginning of the drain on.
func (d *drain) Ready(*http.Request) error {
	if d.Begun() {
		return errDraining
	}
	return nil
}

// Run calls serve with a context that outlives ctx by the delay. It returns when serve does.
func (d *drain) Run(ctx context.Context, serve func(context.Context) error) error {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go func() {
		select {
		case <-serving.Done():
			return
		case <-ctx.Done():
		}
		d.begun.Store(true)
		d.logger.Info("stopping: serving on until every API server has heard of it", "delay", d.delay.String())
		select {
		case <-serving.Done():
		case <-d.clock.After(d.delay):
			stop()
		}
	}()
	return serve(serving)
}
