package process

import (
	"os"
	"runtime/debug"
)

// CollectGarbage sets how much of the heap may become garbage, in percent of what is in use, before it is collected. Whoever
// starts the program decides otherwise with GOGC; GOMEMLIMIT, if set, bounds the heap in any case.
func CollectGarbage(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
