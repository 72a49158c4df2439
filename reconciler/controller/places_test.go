package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

func named(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// A namespace leaves places to others, those who wait for slow clusters leave places to those who do not, and all that talk
// to other clusters leave workers to those that do not.
func TestPassesAbroad(t *testing.T) {
	const quick, slow = false, true
	type step struct {
		namespace, name string
		patient         bool
		entered         bool
	}
	cases := map[string]struct {
		workers int
		steps   []step
	}{
		"a quarter of the workers is left": {8, []step{
			{"a", "1", quick, true}, {"a", "2", quick, true}, {"a", "3", quick, true}, {"b", "1", slow, true},
			{"a", "4", quick, true}, {"a", "5", quick, true}, {"c", "1", quick, false}, {"c", "2", slow, false},
		}},
		"a quarter of the workers waits": {16, []step{
			{"a", "1", slow, true}, {"a", "2", slow, true}, {"a", "3", slow, false}, {"b", "1", slow, true},
			{"b", "2", slow, false}, {"c", "1", slow, true}, {"d", "1", slow, false}, {"a", "4", quick, true},
		}},
		"one worker": {1, []step{{"a", "1", slow, true}, {"b", "1", quick, false}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var places places
			for i, step := range tc.steps {
				if got := places.enter(named(step.namespace, step.name), step.patient, tc.workers); got != step.entered {
					t.Errorf("step %d, %s: entered is %t, want %t", i, step.namespace, got, step.entered)
				}
			}
		})
	}
}

// line is five places of which a, b and c have all, and d is the first in line; a has many more StageSets.
func line(t *testing.T) *places {
	t.Helper()
	var p places
	for _, name := range []types.NamespacedName{named("a", "1"), named("a", "2"), named("a", "3"), named("b", "1"), named("c", "1")} {
		if !p.enter(name, true, 20) {
			t.Fatalf("%s finds no place", name)
		}
	}
	p.refuses(t, named("d", "1"))
	for i := range 1000 {
		p.refuses(t, named("a", fmt.Sprint("more-", i)))
	}
	return &p
}

func (p *places) refuses(t *testing.T, name types.NamespacedName) {
	t.Helper()
	if p.enter(name, true, 20) {
		t.Errorf("%s finds a place", name)
	}
}

func calls(t *testing.T, got []types.NamespacedName, want ...types.NamespacedName) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("called (-want +got):\n%s", diff)
	}
}

// Whoever finds no place is called in its turn, however many StageSets another namespace has, and however often they come.
func TestNamespacesWithoutAPlaceTakeTurns(t *testing.T) {
	now := time.Unix(10_000, 0)
	p := line(t)
	p.refuses(t, named("e", "1"))
	p.refuses(t, named("e", "2"))
	p.refuses(t, named("f", "1"))
	calls(t, p.leave(named("a", "1"), true, 20, now), named("d", "1"))
	p.refuses(t, named("a", "more-999"))
	p.refuses(t, named("f", "1"))
	if !p.enter(named("d", "1"), true, 20) {
		t.Error("whoever was called finds no place")
	}
	for _, turn := range []struct{ leaves, next types.NamespacedName }{
		{named("d", "1"), named("e", "1")}, {named("b", "1"), named("f", "1")},
	} {
		calls(t, p.leave(turn.leaves, true, 20, now), turn.next)
		if !p.enter(turn.next, true, 20) {
			t.Errorf("%s finds no place", turn.next)
		}
	}
	calls(t, p.leave(named("c", "1"), true, 20, now)) // the last place is for a namespace that has none
	calls(t, p.leave(named("e", "1"), true, 20, now), named("e", "2"))
	calls(t, p.leave(named("f", "1"), true, 20, now))
	calls(t, p.renounce(named("e", "2"), 20, now), named("a", "more-0"))
}

// A place is not kept for ever, and not for a StageSet that needs none any more.
func TestAPlaceIsKeptForAMoment(t *testing.T) {
	now := time.Unix(10_000, 0)
	p := line(t)
	p.refuses(t, named("e", "1"))
	p.refuses(t, named("f", "1"))
	calls(t, p.leave(named("b", "1"), true, 20, now), named("d", "1"))
	calls(t, p.due(20, now.Add(maxCalled)))
	calls(t, p.due(20, now.Add(maxCalled+1)), named("e", "1"))
	p.refuses(t, named("d", "1"))
	calls(t, p.renounce(named("e", "1"), 20, now), named("f", "1"))
	if !p.enter(named("f", "1"), true, 20) {
		t.Error("whoever was called finds no place")
	}
	calls(t, p.renounce(named("d", "1"), 20, now))
	calls(t, p.leave(named("c", "1"), true, 20, now))
}

// Who waits for slow clusters keeps nobody in line who does not, be it of its own namespace.
func TestThoseInAHurryDoNotWaitForPatientOnes(t *testing.T) {
	now := time.Unix(10_000, 0)
	p := line(t)
	for i := range 10 {
		if !p.enter(named("g", fmt.Sprint(i)), false, 20) {
			t.Fatalf("%d finds no place", i)
		}
	}
	if p.enter(named("a", "quick"), false, 20) {
		t.Error("more than three quarters are abroad")
	}
	calls(t, p.leave(named("g", "0"), false, 20, now), named("a", "quick"))
	if !p.enter(named("a", "quick"), true, 20) { // it has met a slow cluster meanwhile
		calls(t, p.due(20, now))
	}
	if p.taken != 14 || p.patient != 5 {
		t.Errorf("%d places are taken, %d of them patient", p.taken, p.patient)
	}
}

// Whatever comes and goes, nothing is left of it in the end.
func TestPlacesAreGivenBack(t *testing.T) {
	now := time.Unix(10_000, 0)
	p := line(t)
	for _, name := range []types.NamespacedName{named("a", "1"), named("a", "2"), named("a", "3"), named("b", "1"), named("c", "1")} {
		p.leave(name, true, 20, now)
	}
	p.renounce(named("d", "1"), 20, now)
	for i := range 1000 {
		p.renounce(named("a", fmt.Sprint("more-", i)), 20, now)
	}
	if p.taken+p.patient+len(p.of)+len(p.line)+len(p.turns)+len(p.called) != 0 {
		t.Errorf("something is left: %+v", p)
	}
}
