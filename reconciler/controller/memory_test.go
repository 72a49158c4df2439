package controller

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/release"
	"github.com/stageset/stageset/reconciler/rules"
)

// Runs that wait are kept only as far as all of them together fit: a tenant whose many releases wait must not fill the
// memory that everybody shares.
func TestRunsThatWaitAreKeptWithinABudget(t *testing.T) {
	var all memory
	of := func(name string) *memo { return all.of(types.NamespacedName{Name: name}, "uid") }
	kept := func(name string, size int64) bool {
		of(name).keep(&release.Run{}, candidate{identity: name}, size)
		return of(name).run != nil
	}
	if !kept("a", maxHeld/2) || !kept("b", maxHeld/2) {
		t.Fatal("runs that fit are not kept")
	}
	if kept("c", 1) {
		t.Error("a run above the budget is kept")
	}
	if !kept("a", maxHeld/2) {
		t.Error("a run that goes on waiting is counted twice")
	}
	of("a").drop()
	if !kept("c", 1) {
		t.Error("a run that was dropped still counts")
	}
	all.forget(types.NamespacedName{Name: "b"})
	all.of(types.NamespacedName{Name: "c"}, "another StageSet of that name")
	if all.held != 0 {
		t.Errorf("%d bytes are held by nobody", all.held)
	}
}

// A run that is resumed was reviewed when it began: what the policies warned of then is what they warn of. It is resumed for
// an interval: then somebody has to look for drift again.
func TestResume(t *testing.T) {
	began := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	first, later := &rules.Review{}, &rules.Review{}
	cases := map[string]struct {
		identity string
		after    time.Duration
		resumed  bool
	}{
		"the same":                   {identity: "same", after: 10*time.Minute - 1, resumed: true},
		"another":                    {identity: "other"},
		"the same after an interval": {identity: "same", after: 10 * time.Minute},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var all memory
			memo := all.of(types.NamespacedName{Name: "a"}, "uid")
			memo.keep(&release.Run{}, candidate{identity: "same", review: first, began: began}, 1)
			got := memo.resume(candidate{identity: tc.identity, review: later, began: began.Add(tc.after)}, 10*time.Minute)
			if resumed := memo.run != nil; resumed != tc.resumed {
				t.Fatalf("the run is resumed: %t, want %t", resumed, tc.resumed)
			}
			if fromMemory := got.review == first && got.began.Equal(began); fromMemory != tc.resumed {
				t.Errorf("review and beginning are those of the kept run: %t, want %t", fromMemory, tc.resumed)
			}
		})
	}
}

// Only what was written by a release that is not done keeps drift from being corrected in stages that are not reached.
func TestHasBegun(t *testing.T) {
	type pass struct {
		content        string
		midway, writes bool
	}
	cases := map[string]struct {
		passes []pass
		want   []bool
	}{
		"nothing is written":   {passes: []pass{{content: "a"}, {content: "a"}}, want: []bool{false, false}},
		"something is written": {passes: []pass{{content: "a", writes: true}, {content: "a"}}, want: []bool{false, true}},
		"another release has not begun": {
			passes: []pass{{content: "a", writes: true}, {content: "b", midway: true}}, want: []bool{false, false},
		},
		"an earlier process was midway": {passes: []pass{{content: "a", midway: true}, {content: "a"}}, want: []bool{true, true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var memo memo
			var got []bool
			for _, pass := range tc.passes {
				begun := memo.hasBegun(pass.content, pass.midway)
				got = append(got, begun)
				memo.begun = begun || pass.writes
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("begun (-want +got):\n%s", diff)
			}
		})
	}
}

// What a StageSet says that waits does not tell whether it has written something, but what it says of its later stages does.
func TestMidway(t *testing.T) {
	revisions := map[string]string{"team-a/app": "2"}
	cases := map[string]struct {
		first, second v1.StagePhase
		revision      string
		observed      int64
		want          bool
	}{
		"has not reached a stage":   {first: v1.StageVerifying, second: v1.StagePending, revision: "2", observed: 1, want: true},
		"has written nothing new":   {first: v1.StageVerifying, second: v1.StageReady, revision: "2", observed: 1},
		"waits for its last stage":  {first: v1.StageReady, second: v1.StageVerifying, revision: "2", observed: 1},
		"succeeded":                 {first: v1.StageReady, second: v1.StageReady, revision: "2", observed: 1},
		"is about another revision": {first: v1.StageVerifying, second: v1.StagePending, revision: "1", observed: 1},
		"is about another spec":     {first: v1.StageVerifying, second: v1.StagePending, revision: "2"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set := &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
			set.Status.ObservedGeneration = tc.observed
			set.Status.LastAttemptedRevisions = map[string]string{"team-a/app": tc.revision}
			set.Status.Stages = []v1.StageStatus{{Name: "one", Phase: tc.first}, {Name: "two", Phase: tc.second}}
			if got := midway(set, revisions); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

// A failure is forgotten when anything of what it depends on changes, as far as the pass came to know it.
func TestFailuresAreLatched(t *testing.T) {
	full := []string{"1", "", "policies", "pins", "dependencies"}
	with := func(another int) []string {
		known := slices.Clone(full)
		known[another] = "another"
		return known
	}
	cases := map[string]struct {
		passes [][]string // what each knows
		want   int        // failures that count in the end
	}{
		"the same":                        {passes: [][]string{full, full, full}, want: 3},
		"another generation":              {passes: [][]string{full, full, with(0)}, want: 1},
		"asked for":                       {passes: [][]string{full, full, with(1)}, want: 1},
		"other policies":                  {passes: [][]string{full, full, with(2)}, want: 1},
		"other pins":                      {passes: [][]string{full, full, with(3)}, want: 1},
		"another version of a dependency": {passes: [][]string{full, full, with(4)}, want: 1},
		"did not come as far":             {passes: [][]string{full, {"1", ""}, full}, want: 3},
		"did not come as far, and then another": {
			passes: [][]string{full, {"1", ""}, {"1", "", "policies", "others", "dependencies"}}, want: 1,
		},
		"comes further each time": {passes: [][]string{{"1", ""}, {"1", "", "policies"}, full}, want: 3},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := memo{}
			for _, known := range tc.passes {
				m.latch(known)
				m.failures++
			}
			if m.failures != tc.want {
				t.Errorf("%d failures count, want %d", m.failures, tc.want)
			}
		})
	}
}

// What a policy fills in is in no index: it wakes all the same, as long as it is filled in.
func TestWhatPoliciesFillInWakes(t *testing.T) {
	var r Reconciler
	stored := &v1.StageSet{Spec: v1.StageSetSpec{
		DependsOn: []v1.DependencyReference{{Name: "base"}},
		Stages:    []v1.Stage{{SourceRef: v1.SourceReference{Kind: v1.SourceKindGitRepository, Name: "app"}}},
	}}
	stored.Namespace = "team-a"
	effective := stored.DeepCopy()
	effective.Spec.Stages[0].SourceRef.Namespace = "sources"
	effective.Spec.DependsOn = append(effective.Spec.DependsOn, v1.DependencyReference{Name: "network", Namespace: "platform"})
	name := types.NamespacedName{Namespace: "team-a", Name: "shop"}
	followers := func(field, value string) bool { return len(r.memory.followers(wake(field, value))) > 0 }

	r.memory.of(name, "uid").follow(effective, stored)
	for field, value := range map[string]string{indexSource: "GitRepository/sources/app", indexDependency: "platform/network"} {
		if !followers(field, value) {
			t.Errorf("%s of %s wakes nobody", value, field)
		}
	}
	if followers(indexDependency, "team-a/base") {
		t.Error("what is stored is followed, although it is in the index")
	}
	r.memory.of(name, "uid").follow(stored, stored)
	if followers(indexSource, "GitRepository/sources/app") {
		t.Error("what is no longer filled in wakes on")
	}
	r.memory.of(name, "uid").follow(effective, stored)
	r.memory.forget(name)
	if followers(indexSource, "GitRepository/sources/app") {
		t.Error("a StageSet that is gone is woken")
	}
}

// A pass that follows at once starts from the status that the last one stored, not from what the cache still shows; and no
// longer than the cache is behind.
func TestAStatusThatTheCacheDoesNotShowYet(t *testing.T) {
	at := func(version, stage string) *v1.StageSet {
		return &v1.StageSet{
			ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}, Status: v1.StageSetStatus{CurrentStage: stage},
		}
	}
	var all memory
	memo := all.of(types.NamespacedName{Namespace: "team-a", Name: "shop"}, "1")
	status := func(cached *v1.StageSet) string {
		memo.catchUp(cached)
		return cached.Status.CurrentStage
	}
	if got := status(at("9", "cached")); got != "cached" {
		t.Errorf("before anything was stored: %q", got)
	}
	memo.wrote(at("10", "stored"))
	for range 2 {
		if got := status(at("9", "cached")); got != "stored" {
			t.Errorf("with a cache that is behind: %q", got)
		}
	}
	if got := status(at("11", "of another")); got != "of another" {
		t.Errorf("with a cache that is ahead: %q", got)
	}
	if memo.written != nil {
		t.Error("what the cache shows is kept")
	}
}

// I10: the passes of all tenants together have a bound, and those of one tenant half of it, so that another always finds room.
func TestPassesShareTheRoom(t *testing.T) {
	const most = maxWorking / 2
	var all memory
	of := func(namespace, name string) *memo {
		return all.of(types.NamespacedName{Namespace: namespace, Name: name}, "uid")
	}
	large := of("a", "large")
	large.rest() // the very first pass may end before it has rendered anything
	if first, second := large.room(most/2), large.room(most/2); !first || !second {
		t.Fatal("the largest release finds no room")
	}
	if large.room(1) {
		t.Error("a release has more than half")
	}
	if of("a", "other").room(smallWork + 1) {
		t.Error("a tenant has more than half")
	}
	if !of("a", "small").room(smallWork) {
		t.Error("a small release finds no room")
	}
	of("a", "small").rest()
	if !of("b", "large").room(most) {
		t.Error("one tenant's releases leave no room for another's")
	}
	if of("c", "third").room(smallWork + 1) {
		t.Error("there is more room than there should be")
	}
	of("b", "large").rest()
	if !of("c", "third").room(most) {
		t.Error("the room of a pass that has ended is not free")
	}
	of("c", "third").rest()
	large.rest()
	large.resumed(most)
	if of("a", "other").room(smallWork + 1) {
		t.Error("a run that goes on counts for nothing")
	}
	large.rest()
	large.rest()
	if len(all.working) != 0 {
		t.Errorf("something is left: %v", all.working)
	}
}
