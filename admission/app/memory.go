package app

import (
	"os"
	"runtime/debug"
)

// gcPercent is how much of the heap may become garbage, in percent of what is in use, before it is collected. What is in use
// is little, the compiled policies and the caches of watches, and each request leaves much: with Go's own 100, a sixth of the
// time goes into marking the same compiled policies again. It costs about 30 MB.
const gcPercent = 400

// tuneMemory sets gcPercent, unless whoever runs the program has set GOGC. GOMEMLIMIT, if set, still bounds the heap.
func tuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
