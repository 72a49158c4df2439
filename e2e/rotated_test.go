package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

// T-24: credentials that are replaced again and again, as short-lived ones are, are used from the next pass on, and nothing of
// the former ones is kept: no connection, and nobody who waits on it.
func TestCredentialsRotatedAgainAndAgain(t *testing.T) {
	const rotations = 200
	s := setup(t)
	profiles := newProfiler(t)
	reconciler := s.ownReconciler(t, profiles.argument())
	n := s.remote(t)
	revision := n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	n.stageSet(t, "app", toOther("app", "remote"))
	n.waitReady(t, "app", "app", revision)
	rotate := func(number int) {
		t.Helper()
		n.kubeconfig(t, "remote", kubeconfigOf(t, n.there.TokenConfig(t, "default", hub)))
		n.request(t, "app", fmt.Sprint(number))
		n.wait(t, "app", handled(fmt.Sprint(number)), cluster.Condition(v1.ConditionReady, "True"))
	}
	for number := range 10 {
		rotate(number)
	}
	goroutines, files := profiles.goroutines(t), openFiles(t, reconciler)
	for number := 10; number < rotations; number++ {
		rotate(number)
	}
	const more = 20 // what else goes on, by chance
	if got := profiles.goroutines(t); got > goroutines+more {
		t.Errorf("%d goroutines after %d rotations, and %d after 10", got, rotations, goroutines)
	}
	if got := openFiles(t, reconciler); got > files+more {
		t.Errorf("%d open files after %d rotations, and %d after 10", got, rotations, files)
	}

	// The last one works.
	n.there.WaitFor(t, n.configMap("a"))
	revision = n.source(t, "app", map[string]string{"a.yaml": configMap("a", "2")})
	n.waitReady(t, "app", "app", revision)
}

// goroutines is how many the program has.
func (p profiler) goroutines(t testing.TB) int {
	t.Helper()
	match := regexp.MustCompile(`^goroutine profile: total (\d+)`).FindSubmatch(p.get(t, "goroutine?debug=1"))
	if match == nil {
		t.Fatal("the profile does not say how many goroutines there are")
	}
	count, err := strconv.Atoi(string(match[1]))
	if err != nil {
		t.Fatal(err)
	}
	return count
}

// openFiles is how many files and connections a process has open.
func openFiles(t testing.TB, of *process.Process) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", of.PID()))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
