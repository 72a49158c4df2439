// Package queue is a work queue that is fair between lanes, such as namespaces: whoever has much to do, or is slow, takes
// turns with the others, and never has so many workers that nobody else finds one. It is client-go's workqueue in all else:
// an item is in it once, however often it is added, and is never worked on twice at the same time. It knows no delays,
// which are client-go's, and nothing of what an item is.
package queue

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Options say what a queue is made of.
type Options[T comparable] struct {
	// Workers is how many call Get: at least one. Each calls Done before it calls Get again.
	Workers int
	// Lane is the lane of an item.
	Lane func(item T) string
	// Clock tells how long items wait.
	Clock clock.PassiveClock
	// Waited is told how long an item waited until a worker took it; it must return at once. nil tells nobody.
	Waited func(time.Duration)
}

// Queue is a workqueue.TypedInterface of client-go. A lane may have a worker if it has none, or has fewer than are free: at
// most half of all, half of what others leave, and so on, so that a new lane finds a free worker at once as long as there
// are not many lanes that take all they can get. Among those that may, the lane with the fewest workers is next; among
// equals, they take turns. Within a lane items are worked on in their order.
type Queue[T comparable] struct {
	options Options[T]

	mu      sync.Mutex
	changed *sync.Cond
	// dirty are the items to be worked on; one that is also in processing waits for its end.
	dirty, processing map[T]bool
	lanes             map[string]*lane[T]
	// turns are the lanes with waiting items, in the order of their turns.
	turns        []*lane[T]
	shuttingDown bool
}

// lane is what is known of a lane that has something waiting or running.
type lane[T comparable] struct {
	name    string
	waiting []waiting[T]
	running int
}

type waiting[T comparable] struct {
	item  T
	since time.Time
}

// New is an empty queue.
func New[T comparable](options Options[T]) *Queue[T] {
	q := &Queue[T]{
		options: options, dirty: map[T]bool{}, processing: map[T]bool{}, lanes: map[string]*lane[T]{},
	}
	q.changed = sync.NewCond(&q.mu)
	return q
}

// Add has an item worked on, after what is waiting in its lane. One that is worked on just now comes after that.
func (q *Queue[T]) Add(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.shuttingDown || q.dirty[item] {
		return
	}
	q.dirty[item] = true
	if !q.processing[item] {
		q.enqueue(item)
	}
}

// enqueue puts an item at the end of its lane, and the lane, if nothing was waiting in it, at the end of the turns.
func (q *Queue[T]) enqueue(item T) {
	own := q.laneOf(item)
	if len(own.waiting) == 0 {
		q.turns = append(q.turns, own)
	}
	own.waiting = append(own.waiting, waiting[T]{item: item, since: q.options.Clock.Now()})
	if q.may(own) {
		q.changed.Signal()
	}
}

func (q *Queue[T]) laneOf(item T) *lane[T] {
	name := q.options.Lane(item)
	own := q.lanes[name]
	if own == nil {
		own = &lane[T]{name: name}
		q.lanes[name] = own
	}
	return own
}

// may is true when a lane may have one more worker.
func (q *Queue[T]) may(lane *lane[T]) bool {
	free := q.free()
	return free > 0 && (lane.running == 0 || lane.running < free)
}

// free is how many workers have nothing to work on.
func (q *Queue[T]) free() int { return q.options.Workers - len(q.processing) }

// next is the turn of the lane that gets the next worker; -1 if no lane may have one.
func (q *Queue[T]) next() int {
	best := -1
	for turn, lane := range q.turns {
		if !q.may(lane) || best >= 0 && lane.running >= q.turns[best].running {
			continue
		}
		if best = turn; lane.running == 0 {
			break
		}
	}
	return best
}

// Len is how many items wait.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	total := 0
	for _, lane := range q.turns {
		total += len(lane.waiting)
	}
	return total
}

// Oldest is how long the item has been waiting that waits longest; zero if none does.
func (q *Queue[T]) Oldest() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	longest := time.Duration(0)
	for _, lane := range q.turns {
		longest = max(longest, q.options.Clock.Since(lane.waiting[0].since))
	}
	return longest
}

// Get waits for an item that may be worked on; Done has to be called for it. After ShutDown there is none.
func (q *Queue[T]) Get() (item T, shutdown bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if q.shuttingDown {
			return item, true
		}
		if turn := q.next(); turn >= 0 {
			return q.take(turn), false
		}
		q.changed.Wait()
	}
}

// take takes the first item of the lane whose turn it is, and puts the lane at the end of the turns.
func (q *Queue[T]) take(turn int) T {
	lane := q.turns[turn]
	q.turns = append(q.turns[:turn], q.turns[turn+1:]...)
	first := lane.waiting[0]
	lane.waiting = lane.waiting[1:]
	if len(lane.waiting) > 0 {
		q.turns = append(q.turns, lane)
	}
	lane.running++
	q.processing[first.item] = true
	delete(q.dirty, first.item)
	if q.options.Waited != nil {
		q.options.Waited(q.options.Clock.Since(first.since))
	}
	return first.item
}

// Done says that an item is no longer worked on. If it was added meanwhile, it waits again. Nobody else has to be woken:
// what a lane that has a worker less lets go on is one item, and who calls Done asks for the next.
func (q *Queue[T]) Done(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.processing[item] {
		return
	}
	delete(q.processing, item)
	own := q.laneOf(item)
	own.running--
	if q.dirty[item] {
		q.enqueue(item)
	}
	if own.running == 0 && len(own.waiting) == 0 {
		delete(q.lanes, own.name)
	}
	if q.shuttingDown {
		q.changed.Broadcast() // to who waits for the end
	}
}

// ShutDown ends the queue: workers get nothing more, and what waits is dropped.
func (q *Queue[T]) ShutDown() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shuttingDown = true
	q.changed.Broadcast()
}

// ShutDownWithDrain ends the queue and waits until nothing is worked on any more.
func (q *Queue[T]) ShutDownWithDrain() {
	q.ShutDown()
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.processing) > 0 {
		q.changed.Wait()
	}
}

// ShuttingDown is true after ShutDown.
func (q *Queue[T]) ShuttingDown() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.shuttingDown
}
