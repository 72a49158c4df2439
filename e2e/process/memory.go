package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// PeakMemory is the most that the process has had in memory since it started, in bytes, as Linux counts it (VmHWM in proc(5)).
// The process must still run.
func (p *Process) PeakMemory(t testing.TB) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, found := strings.CutPrefix(line, "VmHWM:"); found {
			kilobytes, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")))
			if err != nil {
				t.Fatal(err)
			}
			return kilobytes << 10
		}
	}
	t.Fatalf("no peak in %s", status)
	return 0
}
