package main

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestAPartRunsOnce(t *testing.T) {
	dir := t.TempDir()
	hold(t, filepath.Join(dir, "reconciler.lock"))
	var stdout, stderr strings.Builder
	code := execute([]string{"--part=reconciler", "--dir=" + dir}, &stdout, &stderr)
	if want := "is in use by another run"; code != exitFailure || !strings.Contains(stderr.String(), want) {
		t.Errorf("code %d with %q, want %d with %q", code, stderr.String(), exitFailure, want)
	}
}

// How parts work together is shown in e2e/tilt.
func TestPartsThatCannotBe(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		code int
		want string
	}{
		"unknown":                 {[]string{"--part=database"}, exitUsage, `no part "database", but admission, controlplane, `},
		"unknown, asked":          {[]string{"--ready=database"}, exitUsage, `no part "database"`},
		"asked without a start":   {[]string{"--ready=git"}, exitFailure, "git is not ready: "},
		"without a control plane": {[]string{"--part=git"}, exitFailure, "the part controlplane has to run first: "},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr strings.Builder
			code := execute(append(test.args, "--dir="+t.TempDir()), &stdout, &stderr)
			if code != test.code || !strings.Contains(stderr.String(), test.want) {
				t.Errorf("code %d with %q, want %d with %q", code, stderr.String(), test.code, test.want)
			}
		})
	}
}
