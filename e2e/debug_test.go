package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stageset/stageset/e2e/process"
)

// Profiles tell what a program works on: it serves them on loopback or not at all, and never where others are served.
func TestProfilesAreServedOnLoopbackAlone(t *testing.T) {
	s := setup(t)
	for _, program := range []string{programReconciler, programAdmission} {
		for _, address := range []string{":6060", "0.0.0.0:6060", "[::]:6060", "10.0.0.1:6060", "localhost:6060"} {
			_, err := process.Launch(t.Context(), process.Options{
				Path: binary(t, program), Args: []string{"--namespace=" + system, "--debug-bind-address=" + address},
				ReadyOutput: "nothing that it says",
			})
			if want := fmt.Sprintf("--debug-bind-address is %q: it must be a loopback address", address); err == nil ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("%s with --debug-bind-address=%s: got %v, want %q", program, address, err, want)
			}
		}
	}
	metrics, profiles := fmt.Sprintf("127.0.0.1:%d", process.FreePort(t)), fmt.Sprintf("127.0.0.1:%d", process.FreePort(t))
	s.ownReconciler(t, "--metrics-bind-address="+metrics, "--debug-bind-address="+profiles)
	for address, want := range map[string]int{profiles: http.StatusOK, metrics: http.StatusNotFound} {
		response, err := http.Get("http://" + address + "/debug/pprof/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s answers %d, want %d", address, response.StatusCode, want)
		}
	}
}
