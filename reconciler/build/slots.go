package build

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// smallBuild is up to where a build may run beside any number of others, in bytes that it reads or estimates to make.
	smallBuild = 8 << 20
	// largeBuilds is how many others run at once: each may take a gigabyte and more.
	largeBuilds = 2
	// busyPause is when a build is tried again that found all slots taken, or another caller at it.
	busyPause = 2 * time.Second
	// gaveUp is when a namespace that was refused a slot, and does not try again, does not wait any more.
	gaveUp = 5 * busyPause
	// sharedPatience is how long a caller waits for the same build of another one. Most take less, and few take a minute.
	sharedPatience = 250 * time.Millisecond
)

// errBusy says that a build waits for its turn. It does not wait by itself: a worker must not.
var errBusy = fmt.Errorf("%d other builds of more than %d MiB are running, or are next, and this one waits for its turn",
	largeBuilds, smallBuild>>20)

// errShared says that another pass is at the same build.
var errShared = errors.New("the same build is running for another StageSet")

// slots are the large builds that run. They go to the namespace that has the fewest, and of equals to the one that waits
// longest: a namespace has a second one only while no other wants it.
type slots struct {
	clock clock.PassiveClock

	mutex   sync.Mutex
	free    int
	running map[string]int
	// waiting are the namespaces that were refused a slot, in the order in which they first were.
	waiting []turn
}

// turn is a namespace that waits, and when it last asked.
type turn struct {
	namespace string
	asked     time.Time
}

func newSlots(clock clock.PassiveClock) *slots {
	return &slots{clock: clock, free: largeBuilds, running: map[string]int{}}
}

// take is true if the namespace has a slot from then on. If not, it waits, as long as it asks again.
func (s *slots) take(namespace string) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	now := s.clock.Now()
	s.waiting = slices.DeleteFunc(s.waiting, func(t turn) bool { return now.Sub(t.asked) > gaveUp })
	place := slices.IndexFunc(s.waiting, func(t turn) bool { return t.namespace == namespace })
	if place < 0 {
		place, s.waiting = len(s.waiting), append(s.waiting, turn{namespace: namespace})
	}
	s.waiting[place].asked = now
	if s.free <= s.ahead(place) {
		return false
	}
	s.waiting = slices.Delete(s.waiting, place, place+1)
	s.running[namespace]++
	s.free--
	return true
}

// ahead is how many of those that wait come before the one in a place.
func (s *slots) ahead(place int) int {
	has, ahead := s.running[s.waiting[place].namespace], 0
	for i, other := range s.waiting {
		if others := s.running[other.namespace]; others < has || others == has && i < place {
			ahead++
		}
	}
	return ahead
}

// leave gives back a slot of the namespace.
func (s *slots) leave(namespace string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.free++
	if s.running[namespace]--; s.running[namespace] == 0 {
		delete(s.running, namespace)
	}
}

// slot is the place of one build among the large ones, once it needs it; of none if nobody counts.
type slot struct {
	of        *slots
	namespace string
	taken     bool
}

// need takes a slot if the build has become large.
func (s *slot) need(bytes int64) error {
	if s.taken || s.of == nil || bytes <= smallBuild {
		return nil
	}
	if s.taken = s.of.take(s.namespace); !s.taken {
		return errBusy
	}
	return nil
}

// leave gives the slot back when the build has ended, which err may say is still to come.
func (s *slot) leave(err error) {
	if !s.taken {
		return
	}
	var left *leftAloneError
	if !errors.As(err, &left) {
		s.of.leave(s.namespace)
		return
	}
	go func() {
		<-left.ended
		s.of.leave(s.namespace)
	}()
}
