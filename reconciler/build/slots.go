package build

import (
	"errors"
	"fmt"
	"time"
)

const (
	// smallBuild is up to where a build may run beside any number of others, in bytes that it reads or estimates to make.
	smallBuild = 8 << 20
	// largeBuilds is how many others run at once: each may take a gigabyte and more.
	largeBuilds = 2
	// busyPause is when a build is tried again that found all slots taken, or another caller at it.
	busyPause = 2 * time.Second
	// sharedPatience is how long a caller waits for the same build of another one. Most take less, and few take a minute.
	sharedPatience = 250 * time.Millisecond
)

// errBusy says that a build waits for its turn. It does not wait by itself: a worker must not.
var errBusy = fmt.Errorf("%d other builds of more than %d MiB are running, and this one waits for its turn",
	largeBuilds, smallBuild>>20)

// errShared says that another pass is at the same build.
var errShared = errors.New("the same build is running for another StageSet")

// slots are the large builds that run; nil is any number.
type slots chan struct{}

// slot is the place of one build among the large ones, once it needs it.
type slot struct {
	of    slots
	taken bool
}

// need takes a slot if the build has become large.
func (s *slot) need(bytes int64) error {
	if s.taken || s.of == nil || bytes <= smallBuild {
		return nil
	}
	select {
	case s.of <- struct{}{}:
		s.taken = true
		return nil
	default:
		return errBusy
	}
}

// leave gives the slot back when the build has ended, which err may say is still to come.
func (s *slot) leave(err error) {
	if !s.taken {
		return
	}
	var left *leftAloneError
	if !errors.As(err, &left) {
		<-s.of
		return
	}
	go func() {
		<-left.ended
		<-s.of
	}()
}
