package tenant

import (
	"strconv"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// What is remembered of a cluster has a bound in bytes, however its answers are spread, and is what was used last.
func TestKindsForgetWhatIsTooMuch(t *testing.T) {
	k := newKinds(clocktesting.NewFakePassiveClock(time.Unix(0, 0)), 1000)
	for range 3 {
		for path := range 20 {
			k.remember(strconv.Itoa(path), &discovered{size: 90 + path})
		}
	}
	if k.size > 1000 || k.size < 1000-110 {
		t.Errorf("%d bytes are remembered, want as many as there is room for", k.size)
	}
	sum := 0
	for path := range 20 {
		if found, ok := k.cache.Get(strconv.Itoa(path)); ok {
			sum += found.(*discovered).size
		} else if path >= 12 {
			t.Errorf("%d was forgotten, and elder ones were not", path)
		}
	}
	if sum != k.size {
		t.Errorf("%d bytes are remembered and %d counted", sum, k.size)
	}
}
