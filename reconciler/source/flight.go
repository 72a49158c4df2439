package source

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// flight is one download that any number of StageSets wait for. The Fetcher's mutex guards its fields.
type flight struct {
	name string
	pin  Pin
	// waiting are the StageSets that wait for it: true for those that have to be woken when it is over.
	waiting map[types.NamespacedName]bool
	started bool
	// done is closed when it is over.
	done chan struct{}
}

// turn is the turn of a flight in the lane of a namespace that waits for it: in each, so that nobody waits longer for it
// because somebody else, who has many, has asked for it too.
type turn struct {
	flight    *flight
	namespace string
}

// landing is how a flight ended that failed.
type landing struct {
	name string
	err  error
}

// told is the failure of the flight of that name, if the StageSet has yet to be told of one; it is told once.
func (f *Fetcher) told(stageSet types.NamespacedName, name string) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	landed := f.failures[stageSet]
	delete(f.failures, stageSet)
	if landed.name != name {
		return nil
	}
	return landed.err
}

// Forget ends whatever a StageSet waits for.
func (f *Fetcher) Forget(stageSet types.NamespacedName) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	delete(f.failures, stageSet)
	f.leaveAllBut("", stageSet)
}

// leaveAllBut takes a StageSet off the flights of other names. Nobody will ask for most of them again.
func (f *Fetcher) leaveAllBut(name string, stageSet types.NamespacedName) {
	for other, flight := range f.flights {
		if other == name {
			continue
		}
		delete(flight.waiting, stageSet)
		if len(flight.waiting) == 0 && !flight.started {
			delete(f.flights, other)
		}
	}
}

// join has a StageSet wait for the flight of that name, and for it alone. There is a new one if there was none.
func (f *Fetcher) join(name string, stageSet types.NamespacedName, pin Pin) *flight {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.leaveAllBut(name, stageSet)
	joined := f.flights[name]
	if joined == nil {
		joined = &flight{name: name, pin: pin, waiting: map[types.NamespacedName]bool{}, done: make(chan struct{})}
		f.flights[name] = joined
	}
	joined.waiting[stageSet] = false
	if !joined.started {
		f.turns.Add(turn{flight: joined, namespace: stageSet.Namespace})
	}
	return joined
}

// leave has a StageSet woken when the flight is over; false if it is.
func (f *Fetcher) leave(left *flight, stageSet types.NamespacedName) bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	select {
	case <-left.done:
		return false
	default:
		left.waiting[stageSet] = true
		return true
	}
}

// work makes downloads until the Fetcher is closed.
func (f *Fetcher) work() {
	for {
		next, closed := f.turns.Get()
		if closed {
			return
		}
		if f.start(next.flight) {
			f.fly(next.flight)
		}
		f.turns.Done(next)
	}
}

// start is true when a flight is the caller's to make: nobody else makes it, and somebody waits for it.
func (f *Fetcher) start(waiting *flight) bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if waiting.started || f.flights[waiting.name] != waiting {
		return false
	}
	waiting.started = true
	return true
}

// fly makes a download, and wakes who waits for it.
func (f *Fetcher) fly(flight *flight) {
	ctx, cancel := context.WithTimeoutCause(f.base, f.timeout, fmt.Errorf("it takes longer than %s", f.timeout))
	defer cancel()
	found, err := f.fetch(ctx, flight.name, flight.pin)
	left := f.land(flight, err)
	if found != nil {
		f.store.release(found)
	}
	for _, stageSet := range left {
		if f.wake != nil {
			f.wake(f.base, stageSet)
		}
	}
}

// land ends a flight; it gives the StageSets that have to be woken.
func (f *Fetcher) land(landed *flight, err error) (left []types.NamespacedName) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	delete(f.flights, landed.name)
	for stageSet, hasLeft := range landed.waiting {
		if err != nil {
			f.failures[stageSet] = landing{name: landed.name, err: err}
		}
		if hasLeft {
			left = append(left, stageSet)
		}
	}
	close(landed.done)
	return left
}
