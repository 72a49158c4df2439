package controller

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1 "github.com/stageset/stageset/api/v1"
)

// Waits wake StageSets when something of our own is over that a pass did not wait for, and that no watch tells of.
type Waits struct{ over chan event.GenericEvent }

// NewWaits are no waits yet.
func NewWaits() Waits { return Waits{over: make(chan event.GenericEvent)} }

// Over wakes a StageSet. It blocks until it was heard, which it is while passes are made, or until ctx is done.
func (w Waits) Over(ctx context.Context, name types.NamespacedName) {
	set := &v1.StageSet{}
	set.Namespace, set.Name = name.Namespace, name.Name
	select {
	case w.over <- event.GenericEvent{Object: set}:
	case <-ctx.Done():
	}
}

// source tells the queue.
func (w Waits) source() source.Source {
	return source.Channel(w.over, &handler.EnqueueRequestForObject{})
}
