package queue

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	testclock "k8s.io/utils/clock/testing"
)

// laned is the lane of an item such as "a/1".
func laned(item string) string {
	lane, _, _ := strings.Cut(item, "/")
	return lane
}

var began = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func newQueue(workers int) *Queue[string] {
	return New(Options[string]{Workers: workers, Lane: laned, Clock: testclock.NewFakePassiveClock(began)})
}

// takeAll takes items until no lane may have a worker.
func takeAll(q *Queue[string]) []string {
	var taken []string
	for q.next() >= 0 {
		item, _ := q.Get()
		taken = append(taken, item)
	}
	return taken
}

func TestLanesTakeTurns(t *testing.T) {
	cases := map[string]struct {
		workers int
		add     []string
		want    []string
	}{
		"one lane keeps its order, and leaves half": {
			workers: 4, add: []string{"a/1", "a/2", "a/3", "a/4"}, want: []string{"a/1", "a/2"},
		},
		"a lane is never without a worker": {workers: 1, add: []string{"a/1", "a/2"}, want: []string{"a/1"}},
		"who comes later is not behind all that waits": {
			workers: 8, add: []string{"a/1", "a/2", "a/3", "b/1"}, want: []string{"a/1", "b/1", "a/2", "a/3"},
		},
		"half of what is left, and half of that": {
			workers: 8, add: []string{"a/1", "a/2", "a/3", "a/4", "b/1", "b/2", "b/3", "c/1", "c/2"},
			want: []string{"a/1", "b/1", "c/1", "a/2", "b/2", "c/2"},
		},
		"no more than there are workers": {
			workers: 2, add: []string{"a/1", "b/1", "c/1"}, want: []string{"a/1", "b/1"},
		},
		"once however often": {workers: 4, add: []string{"a/1", "b/1", "a/1"}, want: []string{"a/1", "b/1"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			q := newQueue(tc.workers)
			for _, item := range tc.add {
				q.Add(item)
			}
			if diff := cmp.Diff(tc.want, takeAll(q)); diff != "" {
				t.Errorf("taken (-want +got):\n%s", diff)
			}
		})
	}
}

// Each of five lanes takes all that it can get before the next comes, and still the last of them finds a worker.
func TestFreeWorkersAreLeftForNewLanes(t *testing.T) {
	q := newQueue(20)
	running := map[string]int{}
	for _, lane := range []string{"a", "b", "c", "d", "e"} {
		for i := range 30 {
			q.Add(lane + "/" + string(rune('A'+i)))
		}
		for _, item := range takeAll(q) {
			running[laned(item)]++
		}
	}
	if diff := cmp.Diff(map[string]int{"a": 10, "b": 5, "c": 3, "d": 1, "e": 1}, running); diff != "" {
		t.Errorf("workers of each lane (-want +got):\n%s", diff)
	}
}

func TestOldest(t *testing.T) {
	clock := testclock.NewFakePassiveClock(began)
	q := New(Options[string]{Workers: 2, Lane: laned, Clock: clock})
	var got []time.Duration
	look := func() { got = append(got, q.Oldest()) }
	look()
	for i, item := range []string{"a/1", "a/2", "b/1"} {
		clock.SetTime(began.Add(time.Duration(i) * time.Minute))
		q.Add(item)
	}
	look()
	q.Get() // a/1
	look()
	takeAll(q)
	look() // a/2 has no worker yet
	q.Done("a/1")
	takeAll(q)
	look()
	if diff := cmp.Diff([]time.Duration{0, 2 * time.Minute, time.Minute, time.Minute, 0}, got); diff != "" {
		t.Errorf("the longest wait (-want +got):\n%s", diff)
	}
}

func TestItemIsWorkedOnOnceAtATime(t *testing.T) {
	q := newQueue(4)
	q.Add("a/1")
	takeAll(q)
	q.Add("a/1")
	q.Add("a/1")
	if again := takeAll(q); len(again) > 0 || q.Len() != 0 {
		t.Errorf("%v is worked on twice, %d wait", again, q.Len())
	}
	q.Done("a/1")
	if diff := cmp.Diff([]string{"a/1"}, takeAll(q)); diff != "" {
		t.Errorf("after its end (-want +got):\n%s", diff)
	}
	q.Done("a/1")
	q.Done("a/1")
	if q.Len() != 0 || len(q.lanes) != 0 || len(q.dirty) != 0 || len(q.processing) != 0 {
		t.Errorf("something is left: %+v", q)
	}
}

// Whatever is added and done, in whatever order: no worker sleeps while there is something for it.
func TestNoWorkerSleepsThroughWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers = 20
		q := newQueue(workers)
		var group sync.WaitGroup
		ends := make(chan struct{})
		for range workers {
			group.Go(func() {
				for item, shutdown := q.Get(); !shutdown; item, shutdown = q.Get() {
					<-ends
					q.Done(item)
				}
			})
		}
		random := rand.New(rand.NewPCG(1, 2))
		for range 5000 {
			lane := "abcdefghijklmnopqrstuvwxyz"[random.IntN(1+random.IntN(26))]
			switch busy := workers - q.free(); {
			case busy > 0 && random.IntN(5) < 2:
				ends <- struct{}{}
			default:
				q.Add(string(lane) + "/" + string(rune('A'+random.IntN(60))))
			}
			synctest.Wait()
			if q.next() >= 0 {
				t.Fatalf("%d workers are free, and an item waits that may be worked on", q.free())
			}
		}
		if q.Len() == 0 {
			t.Error("nothing waits: this test shows nothing")
		}
		q.ShutDown()
		close(ends)
		group.Wait()
	})
}

func TestShutDownWithDrainWaitsForWhatIsWorkedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(4)
		q.Add("a/1")
		q.Add("a/2")
		item, _ := q.Get()
		drained := false
		go func() {
			q.ShutDownWithDrain()
			drained = true
		}()
		synctest.Wait()
		if drained || !q.ShuttingDown() {
			t.Errorf("drained: %t, shutting down: %t", drained, q.ShuttingDown())
		}
		q.Add("a/3")
		if more, shutdown := q.Get(); !shutdown {
			t.Errorf("%s is worked on after the end", more)
		}
		q.Done(item)
		synctest.Wait()
		if !drained {
			t.Error("it waits for nothing")
		}
	})
}

// simulation is workers on a clock that jumps from one end to the next.
type simulation struct {
	clock *testclock.FakePassiveClock
	queue *Queue[string]
	takes func(item string) time.Duration
	// ends maps what is worked on to its end.
	ends map[string]time.Time
	// latency is how long each took from when it was added, and added when that was.
	latency map[string]time.Duration
	added   map[string]time.Time
}

func (s *simulation) add(item string) {
	s.added[item] = s.clock.Now()
	s.queue.Add(item)
}

// until works on until the time.
func (s *simulation) until(end time.Time) {
	for {
		for s.queue.next() >= 0 {
			item, _ := s.queue.Get()
			s.ends[item] = s.clock.Now().Add(s.takes(item))
		}
		next, at := "", end
		for item, ends := range s.ends {
			if !ends.After(at) {
				next, at = item, ends
			}
		}
		s.clock.SetTime(at)
		if next == "" {
			return
		}
		delete(s.ends, next)
		s.queue.Done(next)
		s.latency[next] = at.Sub(s.added[next])
	}
}

// T-110: one lane of 200 items, each of which takes half a minute, and is added again and again, at most doubles what
// another lane's item takes from when it is added.
func TestSlowLaneDoesNotSlowAnother(t *testing.T) {
	clock := testclock.NewFakePassiveClock(began)
	var longest time.Duration
	s := simulation{
		clock: clock, ends: map[string]time.Time{}, latency: map[string]time.Duration{}, added: map[string]time.Time{},
		takes: func(item string) time.Duration {
			if laned(item) == "slow" {
				return 30 * time.Second
			}
			return 100 * time.Millisecond
		},
		queue: New(Options[string]{Workers: 20, Lane: laned, Clock: clock, Waited: func(waited time.Duration) {
			longest = max(longest, waited)
		}}),
	}
	s.add("quick/1")
	s.until(clock.Now().Add(time.Minute))
	idle := s.latency["quick/1"]
	var worst time.Duration
	for minute := range 60 {
		for i := range 200 {
			s.add("slow/" + string(rune(i)))
		}
		s.until(clock.Now().Add(time.Duration(minute) * time.Second))
		s.add("quick/1")
		s.until(clock.Now().Add(time.Minute))
		worst = max(worst, s.latency["quick/1"])
	}
	if worst > 2*idle {
		t.Errorf("it took %s, and %s while another lane is slow", idle, worst)
	}
	if longest < 5*time.Minute {
		t.Errorf("the slow lane waited %s at most: this test shows nothing", longest)
	}
}
