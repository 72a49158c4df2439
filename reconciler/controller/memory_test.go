package controller

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

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

// A run that is resumed was reviewed when it began: what the policies warned of then is what they warn of.
func TestResumedRunKeepsItsReview(t *testing.T) {
	var all memory
	memo := all.of(types.NamespacedName{Name: "a"}, "uid")
	first, later := &rules.Review{}, &rules.Review{}
	memo.keep(&release.Run{}, candidate{identity: "same", review: first}, 1)
	if got := memo.resume(candidate{identity: "same", review: later}); got.review != first {
		t.Error("the run goes on under a review that has not seen its objects")
	}
	if got := memo.resume(candidate{identity: "other", review: later}); got.review != later || memo.run != nil {
		t.Error("another run goes on under the review of the one before")
	}
}
