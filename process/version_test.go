package process

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

type noOptions struct{}

func (noOptions) AddFlags(*pflag.FlagSet) {}
func (noOptions) Validate() error         { return nil }

func TestVersion(t *testing.T) {
	stamp(t, "1.2.3", "0123abc")
	var output bytes.Buffer
	code, run := Parse("stageset-any", []string{"--version"}, noOptions{}, &output)
	if code != ExitOK || run {
		t.Errorf("code %d, run %t, want an end without an error", code, run)
	}
	if got, want := output.String(), "stageset-any 1.2.3 (revision 0123abc, go1."; !strings.HasPrefix(got, want) {
		t.Errorf("printed %q, want %q and so on", got, want)
	}
}

func TestUserAgentHasTheVersion(t *testing.T) {
	stamp(t, "1.2.3", "0123abc")
	got := userAgent("stageset-any")
	if !strings.HasPrefix(got, "stageset-any/1.2.3 (") || !strings.HasSuffix(got, ") 0123abc") {
		t.Errorf("user agent %q", got)
	}
}

// stamp is what the linker does to a release.
func stamp(t *testing.T, newVersion, newRevision string) {
	t.Helper()
	before := [2]string{version, revision}
	version, revision = newVersion, newRevision
	t.Cleanup(func() { version, revision = before[0], before[1] })
}
