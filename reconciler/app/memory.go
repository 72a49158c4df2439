package app

import (
	"os"
	"runtime/debug"
)

// gcPercent lets the heap grow by half before it is collected, where Go would let it double: most of what a reconciler of many
// StageSets holds is idle, and passes are short, so the memory is worth more than the processor time (docs/performance.md).
const gcPercent = 50

// saveMemory sets how eagerly garbage is collected, unless whoever starts the program has said so in GOGC.
func saveMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
