// Package release_test shows what "make release-binaries" makes, which is what the Dockerfile puts into images. It never
// needs a container engine.
package release_test

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	version  = "1.2.3-test"
	revision = "0123456789abcdef"
)

// run runs a command in the root of the repository and returns what it prints.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir = filepath.Join("..", "..")
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, output)
	}
	return string(output)
}

// An image has no dynamic linker, and the same source is to be the same bytes wherever it is built.
func TestReleaseBinaries(t *testing.T) {
	folder := t.TempDir()
	run(t, "make", "release-binaries", "RELEASE="+folder, "VERSION="+version, "REVISION="+revision)
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for program, ask := range map[string]string{
		"stageset-admission": "--version", "stageset-reconciler": "--version", "stagesetctl": "version",
	} {
		t.Run(program, func(t *testing.T) {
			path := filepath.Join(folder, program)
			output := run(t, path, ask)
			if want := program + " " + version + " (revision " + revision; !strings.HasPrefix(output, want) {
				t.Errorf("%s prints %q, want %q", ask, output, want)
			}
			file, err := elf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			if slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
				t.Error("it wants a dynamic linker")
			}
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(content, []byte(root)) {
				t.Errorf("it has the path of this checkout in it: %s", root)
			}
		})
	}
}

// What an image is built from is listed, so that it does not change with everything else; this keeps the list complete.
func TestImagesAreBuiltFromWhatTheProgramsImport(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "..", ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	ignored := strings.Split(string(content), "\n")
	const module = "github.com/stageset/stageset/"
	for imported := range strings.FieldsSeq(run(t, "go", "list", "-deps", "./admission", "./reconciler")) {
		if path, ours := strings.CutPrefix(imported, module); ours {
			folder, _, _ := strings.Cut(path, "/")
			if !slices.Contains(ignored, "!"+folder) {
				t.Errorf(".dockerignore does not let %s in, which has %s", folder, imported)
			}
		}
	}
}
