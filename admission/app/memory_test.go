package app

import (
	"runtime/debug"
	"testing"
)

func TestTuneMemoryLeavesGOGCAlone(t *testing.T) {
	const before = 70
	original := debug.SetGCPercent(before)
	defer debug.SetGCPercent(original)
	for _, test := range []struct {
		env  string
		want int
	}{{"50", before}, {"off", before}, {"", gcPercent}} {
		t.Setenv("GOGC", test.env)
		tuneMemory()
		if got := debug.SetGCPercent(before); got != test.want {
			t.Errorf("GOGC=%q: %d percent, want %d", test.env, got, test.want)
		}
	}
}
