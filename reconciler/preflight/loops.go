package preflight

import (
	"crypto/sha256"
	"strings"
	"sync"
	"time"

	"github.com/stageset/stageset/reconciler/drift"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/inventory"
)

// Loops remembers which objects of a StageSet somebody else changes in the same way whenever they are corrected. What goes on
// like that is corrected ever more seldom: nobody wins such a fight, and both sides pay for it. A nil Loops remembers nothing.
// It is safe for concurrent use.
type Loops struct {
	mu       sync.Mutex
	objects  map[inventory.Key]loop
	now      time.Time
	interval time.Duration
	// patient is false when everything is to be corrected now.
	patient bool
}

// loop is how often an object was corrected in a row.
type loop struct {
	// drift is a hash of what was corrected: fields and field managers.
	drift     [sha256.Size]byte
	times     int
	corrected time.Time
	seen      bool
}

const (
	// loopAfter is how many times the same is corrected before it is called a loop.
	loopAfter = 2
	// maxLoopPause is the longest pause between two corrections of a loop, unless the interval is longer.
	maxLoopPause = 24 * time.Hour
)

// Begin begins a pass. interval is how often the StageSet looks for drift; everything is corrected in a pass that somebody has
// asked for.
func (l *Loops) Begin(now time.Time, interval time.Duration, asked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now, l.interval, l.patient = now, interval, !asked
	for key, known := range l.objects {
		known.seen = false
		l.objects[key] = known
	}
}

// drifts notes a drift, and says whether it is a loop, and whether it is left as it is in this pass.
func (l *Loops) drifts(found drift.Found) (looping, left bool) {
	if l == nil {
		return false, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.objects == nil {
		l.objects = map[inventory.Key]loop{}
	}
	known := l.objects[found.Key]
	if now := sha256.Sum256([]byte(found.String())); known.drift != now {
		known = loop{drift: now}
	}
	known.seen = true
	l.objects[found.Key] = known
	looping = known.times >= loopAfter
	return looping, looping && l.patient && l.now.Sub(known.corrected) < l.pause(known.times)
}

// pause doubles with each correction, from twice the interval.
func (l *Loops) pause(times int) time.Duration {
	pause, longest := l.interval, max(maxLoopPause, l.interval)
	for times >= loopAfter && pause < longest {
		pause, times = pause*2, times-1
	}
	return min(pause, longest)
}

// corrected notes that a drift was corrected.
func (l *Loops) corrected(found drift.Found) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, drifted := l.objects[found.Key]; drifted {
		known.times, known.corrected = known.times+1, l.now
		l.objects[found.Key] = known
	}
}

// end forgets what did not drift in this pass.
func (l *Loops) end() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, known := range l.objects {
		if !known.seen {
			delete(l.objects, key)
		}
	}
}

// maxLooping is how many objects a text about loops names before it counts.
const maxLooping = 5

// Looping names the fields that others set again and again, and who does; empty if nobody does.
func (c Cleared) Looping() string {
	var parts []string
	for _, stage := range c.stages {
		for _, object := range stage.objects {
			if object.loop != nil {
				parts = append(parts, object.loop.Loop())
			}
		}
	}
	return strings.Join(failure.AndMore(parts[:min(len(parts), maxLooping)], len(parts)-maxLooping), "; ")
}

// Corrected notes that a drifted object was written.
func (c Cleared) Corrected(object *Object) { c.loops.corrected(*object.found) }
