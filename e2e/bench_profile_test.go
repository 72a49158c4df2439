package e2e

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stageset/stageset/e2e/process"
)

// profiles is where the benchmarks keep what the reconciler says of its memory, for "go tool pprof".
var profiles = flag.String("profiles", "", "folder that benchmarks write heap and allocation profiles to; none when empty")

// profiler reads the profiles of a program that runs with its arguments.
type profiler struct{ address string }

func newProfiler(b testing.TB) profiler {
	b.Helper()
	return profiler{address: fmt.Sprintf("127.0.0.1:%d", process.FreePort(b))}
}

// argument has the program serve its profiles.
func (p profiler) argument() string { return "--debug-bind-address=" + p.address }

// allocated is how many bytes the program has allocated since it began.
func (p profiler) allocated(b testing.TB) int64 {
	b.Helper()
	return p.memory(b, "heap?debug=1", "TotalAlloc")
}

// live is how many bytes the program has in its heap after a collection.
func (p profiler) live(b testing.TB) int64 {
	b.Helper()
	return p.memory(b, "heap?debug=1&gc=1", "HeapAlloc")
}

// memory is one of the numbers at the end of a heap profile.
func (p profiler) memory(b testing.TB, profile, name string) int64 {
	b.Helper()
	match := regexp.MustCompile(`(?m)^# ` + name + ` = (\d+)$`).FindSubmatch(p.get(b, profile))
	if match == nil {
		b.Fatalf("the heap profile does not have %s", name)
	}
	total, err := strconv.ParseInt(string(match[1]), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return total
}

// keep writes the profiles that the program has now to the folder of -profiles.
func (p profiler) keep(b *testing.B, when string) {
	b.Helper()
	if *profiles == "" {
		return
	}
	for _, kind := range []string{"heap", "allocs"} {
		name := strings.ReplaceAll(b.Name(), "/", "-") + "-" + when + "-" + kind + ".pprof"
		if err := os.WriteFile(filepath.Join(*profiles, name), p.get(b, kind), 0o600); err != nil {
			b.Fatal(err)
		}
	}
}

func (p profiler) get(b testing.TB, what string) []byte {
	b.Helper()
	request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://"+p.address+"/debug/pprof/"+what, nil)
	if err != nil {
		b.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var content bytes.Buffer
	if _, err := io.Copy(&content, response.Body); err != nil || response.StatusCode != http.StatusOK {
		b.Fatalf("%s: %s, %v", what, response.Status, err)
	}
	return content.Bytes()
}
