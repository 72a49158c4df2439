package process_test

import (
	"runtime/debug"
	"testing"

	"github.com/stageset/stageset/process"
)

func TestCollectGarbageLeavesGOGCAlone(t *testing.T) {
	const before = 70
	original := debug.SetGCPercent(before)
	defer debug.SetGCPercent(original)
	for _, test := range []struct {
		env  string
		want int
	}{{"60", before}, {"off", before}, {"", 50}} {
		t.Setenv("GOGC", test.env)
		process.CollectGarbage(50)
		if got := debug.SetGCPercent(before); got != test.want {
			t.Errorf("GOGC=%q: %d percent, want %d", test.env, got, test.want)
		}
	}
}
