package controller

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// maxCalled is for how long a place is kept for whoever was called to it: as long as a worker takes to come to a StageSet, if
// its namespace has little else to do.
const maxCalled = time.Minute

// places are what passes take that talk to other clusters. How fast those answer is in the hands of whoever writes a
// kubeconfig, so that these passes never have all workers, and those that wait for slow clusters have few. Whoever finds no
// place stands in line, and is called when there is one: nobody who comes later, or more often, is before it.
type places struct {
	mu sync.Mutex
	// taken are the places of passes, and those that are kept.
	taken int
	// patient are those of them that wait for slow clusters, and of each namespace.
	patient int
	of      map[string]int
	// line are the StageSets of each namespace that stand in line, in their order, and turns the namespaces in that of theirs.
	line  map[string][]wanting
	turns []string
	// called are the StageSets that a place is kept for.
	called map[types.NamespacedName]kept
}

// wanting is a StageSet in line; patient is the place that it wants.
type wanting struct {
	name    types.NamespacedName
	patient bool
}

// kept is a place for a StageSet that was called.
type kept struct {
	patient bool
	until   time.Time
}

// enter begins a pass of the StageSet; false if there is no place for it now, and it stands in line. That nobody in line could
// have the place who does not have it is what call sees to, so that whoever finds one is not before anybody.
func (p *places) enter(name types.NamespacedName, patient bool, workers int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	place, called := p.called[name]
	if called {
		delete(p.called, name)
		if place.patient == patient {
			return true
		}
		p.give(name.Namespace, place.patient)
	}
	if !p.may(name.Namespace, patient, workers) {
		p.stand(wanting{name: name, patient: patient})
		return false
	}
	p.leaveLine(name)
	p.take(name.Namespace, patient)
	return true
}

// leave ends a pass that was entered. It returns who is called to the place.
func (p *places) leave(name types.NamespacedName, patient bool, workers int, now time.Time) []types.NamespacedName {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.give(name.Namespace, patient)
	return p.call(workers, now)
}

// renounce has a StageSet that needs no place stand in line no longer. It returns who is called to a place that was kept for it.
func (p *places) renounce(name types.NamespacedName, workers int, now time.Time) []types.NamespacedName {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaveLine(name)
	if place, called := p.called[name]; called {
		delete(p.called, name)
		p.give(name.Namespace, place.patient)
	}
	return p.call(workers, now)
}

// due are those who are called because others did not come in time.
func (p *places) due(workers int, now time.Time) []types.NamespacedName {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.call(workers, now)
}

// call keeps each place that is free for the first in line who may have it. It needs p.mu, as all below.
func (p *places) call(workers int, now time.Time) []types.NamespacedName {
	for name, place := range p.called {
		if now.After(place.until) {
			delete(p.called, name)
			p.give(name.Namespace, place.patient)
		}
	}
	var called []types.NamespacedName
	for turn := 0; turn < len(p.turns); {
		namespace := p.turns[turn]
		first := slices.IndexFunc(p.line[namespace], func(w wanting) bool { return p.may(namespace, w.patient, workers) })
		if first < 0 {
			turn++
			continue
		}
		next := p.line[namespace][first]
		p.leaveLine(next.name)
		if len(p.line[namespace]) > 0 { // its next turn is after those of all others
			p.turns = append(slices.Delete(p.turns, turn, turn+1), namespace)
		}
		p.take(namespace, next.patient)
		if p.called == nil {
			p.called = map[types.NamespacedName]kept{}
		}
		p.called[next.name] = kept{patient: next.patient, until: now.Add(maxCalled)}
		called = append(called, next.name)
	}
	return called
}

// may is true if there is a place. Three in four workers may be abroad, and one in four wait there; a namespace may have one
// that waits if it has none, or fewer than are free, as in package queue.
func (p *places) may(namespace string, patient bool, workers int) bool {
	if p.taken >= max(workers-workers/4, 1) {
		return false
	}
	free := max(workers/4, 1) - p.patient
	return !patient || free > 0 && (p.of[namespace] == 0 || p.of[namespace] < free)
}

func (p *places) take(namespace string, patient bool) {
	p.taken++
	if !patient {
		return
	}
	if p.of == nil {
		p.of = map[string]int{}
	}
	p.patient++
	p.of[namespace]++
}

func (p *places) give(namespace string, patient bool) {
	p.taken--
	if !patient {
		return
	}
	p.patient--
	if p.of[namespace]--; p.of[namespace] == 0 {
		delete(p.of, namespace)
	}
}

// stand puts a StageSet in line, once.
func (p *places) stand(last wanting) {
	namespace := last.name.Namespace
	line := p.line[namespace]
	if at := slices.IndexFunc(line, last.is); at >= 0 {
		line[at] = last
		return
	}
	if p.line == nil {
		p.line = map[string][]wanting{}
	}
	if len(line) == 0 {
		p.turns = append(p.turns, namespace)
	}
	p.line[namespace] = append(line, last)
}

// leaveLine takes a StageSet out of the line, and its namespace if it is the last of it there.
func (p *places) leaveLine(name types.NamespacedName) {
	namespace := name.Namespace
	rest := slices.DeleteFunc(p.line[namespace], wanting{name: name}.is)
	if len(rest) > 0 {
		p.line[namespace] = rest
		return
	}
	delete(p.line, namespace)
	p.turns = slices.DeleteFunc(p.turns, func(turn string) bool { return turn == namespace })
}

// is compares StageSets.
func (w wanting) is(other wanting) bool { return w.name == other.name }
