package controller

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/stageset/stageset/reconciler/release"
	"github.com/stageset/stageset/reconciler/rules"
	"github.com/stageset/stageset/reconciler/teardown"
)

// memory is what is kept between passes. All of it can be lost at any moment: it saves requests, it decides nothing.
type memory struct {
	mu    sync.Mutex
	memos map[types.NamespacedName]*memo
}

// memo is the memory of one StageSet. The queue never runs two passes of one StageSet at once, so it needs no lock.
type memo struct {
	uid types.UID
	// run is a run that waits, and identity what it is a run of.
	run      *release.Run
	identity string
	// review is kept because identity has the address of its policies: none that come later can get the same.
	review *rules.Review
	// failures counts the failures since the last pass that had none, or only waits.
	failures int
	// patience is since when deletions are waited for.
	patience teardown.Patience
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
		known = &memo{uid: uid}
		m.memos[name] = known
	}
	return known
}

func (m *memory) forget(name types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.memos, name)
}

// keep remembers a run that waits.
func (m *memo) keep(run *release.Run, of candidate) {
	m.run, m.identity, m.review = run, of.identity, of.review
}

// drop forgets the run.
func (m *memo) drop() { m.run, m.identity, m.review = nil, "", nil }
