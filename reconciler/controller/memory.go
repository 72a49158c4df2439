package controller

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/pipeline"
	"github.com/stageset/stageset/reconciler/release"
	"github.com/stageset/stageset/reconciler/rules"
)

// memory is what is kept between passes, and what all passes share. All that is kept can be lost at any moment: it saves
// requests, it decides nothing.
type memory struct {
	mu    sync.Mutex
	memos map[types.NamespacedName]*memo
	// held is the size of all runs that are kept.
	held int64
	// working is the size of what passes have rendered that are being made, by namespace.
	working map[string]int64
}

// Bounds of rendered objects, in bytes as JSON; in memory they take several times that.
const (
	// maxHeld bounds all runs that wait. A run above it is not kept: each look at it costs a whole pass then, and nothing is
	// lost.
	maxHeld = 16 << 20
	// maxWorking bounds the passes that are being made. A namespace has at most half of it, which is as much as one StageSet
	// can render: however large the releases of one tenant, the largest of another finds room.
	maxWorking = 128 << 20
	// smallWork is up to where a pass always has room: as many as there are workers cannot fill the memory.
	smallWork = 1 << 20
)

// memo is the memory of one StageSet. The queue never runs two passes of one StageSet at once, so it needs no lock.
type memo struct {
	all       *memory
	namespace string
	uid       types.UID
	// working is the size of what the pass that is being made has rendered.
	working int64
	// size is what the run counts in all.held.
	size int64
	// run is a run that waits, and identity what it is a run of.
	run      *release.Run
	identity string
	// began is when the run began.
	began time.Time
	// content is of what the last pass worked on, and begun is true when something of it was written that was not applied
	// before, and not all of it yet.
	content string
	begun   bool
	// loops are what drifts again and again, and looping is what was last said of it.
	loops   pipeline.Loops
	looping string
	// pins are what the last applied release was pinned to; nil if this process has not applied one. maintained is when it was
	// last looked at while nothing newer could be applied, and detected is what was last said of drift that was left.
	pins       pipeline.Pins
	maintained time.Time
	detected   string
	// running is what was last found to keep the release that runs from being Ready while a newer one is held; nil if nothing.
	running *failure.Error
	// unfilled is what was last said of policies that cannot fill in a StageSet that is being deleted.
	unfilled string
	// review is kept because identity has the address of its policies: none that come later can get the same.
	review *rules.Review
	// written is the StageSet as the last status patch left it, until the cache shows as much.
	written *written
	// slow is true when the last pass has met another cluster that was slow.
	slow bool
	// lost are the stages whose inventories were last found to be lost.
	lost []string
	// failures counts the failures since the last pass that had none, or only waits, and since what is in latched changed.
	failures int
	latched  []string
	// follows is what wakes the StageSet besides what its stored spec names; all.mu guards it.
	follows []string
}

// of is the memo of the StageSet with the UID; a new StageSet of the same name starts with an empty one.
func (m *memory) of(name types.NamespacedName, uid types.UID) *memo {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.memos == nil {
		m.memos = map[types.NamespacedName]*memo{}
	}
	known := m.memos[name]
	if known == nil || known.uid != uid {
		if known != nil {
			m.held -= known.size
		}
		known = &memo{all: m, namespace: name.Namespace, uid: uid}
		m.memos[name] = known
	}
	return known
}

func (m *memory) forget(name types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.memos[name]; known != nil {
		m.held -= known.size
	}
	delete(m.memos, name)
}

// written is a status that was stored, and the resourceVersion that the StageSet had with it.
type written struct {
	status  v1.StageSetStatus
	version string
}

// wrote notes a status that was stored.
func (m *memo) wrote(set *v1.StageSet) {
	m.written = &written{status: *set.Status.DeepCopy(), version: set.ResourceVersion}
}

// catchUp gives a StageSet from the cache the status that was stored last, where the cache is behind: what is found out next
// would be compared with, and merged into, what the API server no longer has.
func (m *memo) catchUp(set *v1.StageSet) {
	if m.written == nil {
		return
	}
	order, err := resourceversion.CompareResourceVersion(set.ResourceVersion, m.written.version)
	if err != nil || order >= 0 {
		m.written = nil
		return
	}
	set.Status = *m.written.status.DeepCopy()
}

// resume is the candidate that a pass goes on with: where the kept run is one of it, with the review that saw the run's
// objects. A run of something else is forgotten, and one that began an interval ago: what has drifted since is found by a new
// one alone.
func (m *memo) resume(next candidate, interval time.Duration) candidate {
	if m.run == nil || m.identity != next.identity || next.began.Sub(m.began) >= interval {
		m.drop()
		return next
	}
	next.review, next.began = m.review, m.began
	return next
}

// hasBegun is true when something of the content was written that was not applied before, and not all of it yet. midway is
// what is believed of a content that an earlier process worked on.
func (m *memo) hasBegun(content string, midway bool) bool {
	if m.content != content {
		m.begun = m.content == "" && midway
		m.content = content
	}
	return m.begun
}

// succeeded remembers what a release that is applied was pinned to.
func (m *memo) succeeded(pins pipeline.Pins) {
	m.begun, m.pins, m.detected, m.running = false, pins, "", nil
}

// keep remembers a run that waits, if all that wait fit into memory.
func (m *memo) keep(run *release.Run, of candidate, size int64) {
	m.drop()
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	if m.all.held+size > maxHeld {
		return
	}
	m.all.held += size
	m.size, m.run, m.identity, m.review, m.began = size, run, of.identity, of.review, of.began
}

// drop forgets the run.
func (m *memo) drop() {
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	m.all.held -= m.size
	m.size, m.run, m.identity, m.review = 0, nil, "", nil
}

// latch forgets the failures of passes that knew something else: another generation, other requests, policies, pins or
// dependencies. known has what this pass came to know of them, in that order: the rest has not changed.
func (m *memo) latch(known []string) {
	both := min(len(known), len(m.latched))
	if !slices.Equal(known[:both], m.latched[:both]) {
		m.failures, m.latched = 0, nil
	}
	if len(known) > len(m.latched) {
		m.latched = known
	}
}

// follow notes what has to wake a StageSet. Its stored spec is in the indexes of the cache; what policies fill in is not.
func (m *memo) follow(effective, stored *v1.StageSet) {
	known := wokenBy(stored)
	var follows []string
	for _, key := range wokenBy(effective) {
		if !slices.Contains(known, key) {
			follows = append(follows, key)
		}
	}
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	m.follows = follows
}

// followers are the StageSets that follow one of the keys.
func (m *memory) followers(key string) []types.NamespacedName {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []types.NamespacedName
	for name, memo := range m.memos {
		if slices.Contains(memo.follows, key) {
			names = append(names, name)
		}
	}
	return names
}
