package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stageset/stageset/e2e/process"
)

func TestAProgramThatEndsEndsTheRun(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		ready  string
	}{
		"before it is ready": {script: "echo begun; exit 7", ready: "never written"},
		"later":              {script: "echo begun; until [ -e go ]; do sleep 0.01; done; exit 7", ready: "begun"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, d := withProgram(t, "brief", test.script)
			err := d.start(ctx, "brief", process.Options{ReadyOutput: test.ready})
			if err == nil {
				touch(t, d.file("go"))
				<-ctx.Done()
				err = context.Cause(ctx)
			}
			failed := new(programError)
			if !errors.As(err, &failed) {
				t.Fatalf("got %v, which does not say what program it is about", err)
			}
			if failed.log != "brief.log" || !strings.Contains(failed.Error(), "exit status 7") {
				t.Errorf("got %q with log %q, want exit status 7 and brief.log", failed, failed.log)
			}
			if diff := cmp.Diff([]string{"begun"}, tail(d.file("logs", failed.log))); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
		})
	}
}

// withProgram is a run whose bin holds a script, and the context that ends with the run.
func withProgram(t *testing.T, name, script string) (context.Context, *demo) {
	t.Helper()
	d := &demo{root: t.TempDir(), options: options{dir: t.TempDir()}}
	for _, folder := range []string{filepath.Join(d.root, "bin"), d.file("logs")} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(d.binary(name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	d.end = cancel
	t.Cleanup(func() { cancel(nil) })
	return ctx, d
}
