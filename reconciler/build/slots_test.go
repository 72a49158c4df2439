package build

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// A namespace has both slots only while no other wants one, and those that wait get theirs in turn, whoever asks first.
func TestSlotsAreFairBetweenNamespaces(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	slots := newSlots(clock)
	take := func(namespace string, want bool) {
		t.Helper()
		if got := slots.take(namespace); got != want {
			t.Errorf("%s asks for a slot: got %t, want %t", namespace, got, want)
		}
	}
	take("a", true)
	take("a", true)
	take("a", false) // and waits before b does
	take("b", false)
	slots.leave("a")
	take("a", false)
	take("b", true)
	take("c", false)
	slots.leave("a") // a and c wait, and have none
	take("d", false)
	take("c", false)
	take("a", true)
	slots.leave("b")
	take("d", false)
	take("c", true)

	// Who does not ask again holds nobody up.
	slots.leave("a")
	clock.SetTime(clock.Now().Add(gaveUp + 1))
	take("c", true)
	take("a", false)
	slots.leave("c")
	slots.leave("c")
	if slots.free != largeBuilds || len(slots.running) > 0 {
		t.Errorf("%d slots are free, and %v are running", slots.free, slots.running)
	}
}
