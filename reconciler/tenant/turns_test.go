package tenant

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// I10, T-110: whatever one namespace asks for at once, it has a quarter of the places, and another finds one.
func TestNamespaceHasAShareOfTheTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const share = 2
		turns := newTurns(share * namespaceShare)
		var group sync.WaitGroup
		var taken atomic.Int32
		release := make(chan struct{})
		for range 20 {
			group.Go(func() {
				done, err := turns.take(t.Context(), "hanging")
				if err != nil {
					t.Error(err)
					return
				}
				taken.Add(1)
				<-release
				done()
			})
		}
		synctest.Wait()
		if got := taken.Load(); got != share {
			t.Errorf("%d have a turn at once, want %d", got, share)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if done, err := turns.take(short, "other"); err != nil {
			t.Errorf("another namespace: %v", err)
		} else {
			done()
		}
		close(release)
		group.Wait()
	})
}

// What is known of a namespace goes with its last request, also with one that did not get its turn.
func TestTurnsOfNamespacesAreForgotten(t *testing.T) {
	turns := newTurns(2 * namespaceShare)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	var all []func()
	take := func(namespace string) {
		done, err := turns.take(t.Context(), namespace)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, done)
	}
	for _, namespace := range []string{"a", "a", "b", "b", "c", "c", "d", "d"} {
		take(namespace)
	}
	for _, namespace := range []string{"a", "e"} { // the one has all of its own places, the other finds none of all
		if _, err := turns.take(gone, namespace); !errors.Is(err, context.Canceled) {
			t.Errorf("a turn of %s: %v, want context.Canceled", namespace, err)
		}
	}
	if got := len(turns.namespaces); got != 4 {
		t.Errorf("%d namespaces are known, want the 4 that have places", got)
	}
	for _, done := range all {
		done()
	}
	if got := len(turns.namespaces); got != 0 {
		t.Errorf("%d namespaces are still known", got)
	}
	take("e")
	all[len(all)-1]()
}
