// Package release_test shows what "make release-binaries" makes, which is what the Dockerfile puts into images. It never
// needs a container engine.
package release_test

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const (
	version  = "1.2.3-test"
	revision = "0123456789abcdef"
)

var root = filepath.Join("..", "..")

// run runs a command in a directory and returns what it prints.
func run(t *testing.T, directory, name string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir = directory
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, output)
	}
	return string(output)
}

// release builds programs of the source in a directory as the Dockerfile does, and returns the folder that they are in.
func release(t *testing.T, directory, programs string) string {
	t.Helper()
	folder := t.TempDir()
	run(t, directory, "make", "release-binaries", "RELEASE="+folder, "PROGRAMS="+programs,
		"VERSION="+version, "REVISION="+revision)
	return folder
}

// An image has no dynamic linker, what runs in it is to be known, and the same source is the same bytes wherever it is
// built, for which what a container engine is given is enough.
func TestReleaseBinaries(t *testing.T) {
	folder := release(t, root, "stageset-admission stageset-reconciler stagesetctl")
	for program, ask := range map[string]string{
		"stageset-admission": "--version", "stageset-reconciler": "--version", "stagesetctl": "version",
	} {
		t.Run(program, func(t *testing.T) {
			path := filepath.Join(folder, program)
			output := run(t, folder, path, ask)
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
		})
	}
	t.Run("the command line says who it is", func(t *testing.T) { saysWhoItIs(t, filepath.Join(folder, "stagesetctl")) })
	context := t.TempDir()
	copyContext(t, context)
	for _, component := range []string{"admission", "reconciler"} {
		elsewhere := t.TempDir()
		build := imageBuild(t, context, elsewhere, "COMPONENT="+component, "TARGETOS=linux", "TARGETARCH="+runtime.GOARCH)
		if output, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		if !bytes.Equal(content(t, folder, "stageset-"+component), content(t, elsewhere, "program")) {
			t.Errorf("stageset-%s differs with the directory that it is built in", component)
		}
	}
}

// saysWhoItIs checks what an API server has in its audit log of requests of stagesetctl.
func saysWhoItIs(t *testing.T, path string) {
	agents := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		agents <- request.UserAgent()
		answer.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], "+
		"clusters: [{name: c, cluster: {server: %q}}]}", server.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), path, "policy", "list", "--kubeconfig", kubeconfig)
	if output, err := command.CombinedOutput(); err == nil {
		t.Errorf("what is forbidden succeeds:\n%s", output)
	}
	close(agents)
	want := fmt.Sprintf("stagesetctl/%s (%s/%s) %s", version, runtime.GOOS, runtime.GOARCH, revision)
	if got := <-agents; got != want {
		t.Errorf("user agent %q, want %q", got, want)
	}
}

// imageBuild is the command that the Dockerfile compiles with, which leaves the program in a folder.
func imageBuild(t *testing.T, directory, folder string, arguments ...string) *exec.Cmd {
	t.Helper()
	_, script, found := strings.Cut(string(content(t, root, "Dockerfile")), "/root/.cache/go-build \\\n")
	script, _, ends := strings.Cut(script, "\n\n")
	if !found || !ends {
		t.Fatal("the Dockerfile has no command that compiles")
	}
	command := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(script, "/release", folder))
	command.Dir = directory
	command.Env = append(append(os.Environ(), "VERSION="+version, "REVISION="+revision), arguments...)
	return command
}

// An image is of the architecture that it is asked for, and of one of the two components.
func TestImageArguments(t *testing.T) {
	for name, test := range map[string]struct {
		arguments []string
		want      string
	}{
		"another architecture": {[]string{"COMPONENT=admission", "TARGETOS=linux", "TARGETARCH=arm64"},
			"GOOS=linux GOARCH=arm64 go build -trimpath"},
		"no component": {nil, "admission or reconciler"},
	} {
		t.Run(name, func(t *testing.T) {
			// Nothing is compiled, so that nothing is there to be moved at the end.
			build := imageBuild(t, root, t.TempDir(), append(test.arguments, "MAKEFLAGS=--dry-run")...)
			if output, err := build.CombinedOutput(); err == nil || !strings.Contains(string(output), test.want) {
				t.Errorf("got %v and\n%s\nwant %q", err, output, test.want)
			}
		})
	}
}

// Every package that a program consists of exists for the architectures and systems that it is released for.
func TestArchitectures(t *testing.T) {
	for _, platform := range []string{"linux/amd64", "linux/arm64"} {
		system, architecture, _ := strings.Cut(platform, "/")
		command := exec.CommandContext(t.Context(), "go", "list", "-deps", "./admission", "./reconciler", "./stagesetctl")
		command.Dir = root
		command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+architecture)
		if output, err := command.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", platform, err, output)
		}
	}
}

// The linker keeps each method of each type, some twenty MiB in memory, as soon as one is looked up by a name that it does not
// know, as templates do.
func TestNobodyLooksUpMethodsByName(t *testing.T) {
	programs := []string{"stageset-admission", "stageset-reconciler"}
	folder := release(t, root, strings.Join(programs, " "))
	for _, program := range programs {
		functions := content(t, folder, program) // has the names of all
		if !bytes.Contains(functions, []byte("github.com/stageset/stageset/process.RESTConfig")) {
			t.Errorf("%s: the names of functions are not found", program)
		}
		if bytes.Contains(functions, []byte("text/template.(*state).evalField")) {
			t.Errorf("%s: what executes templates is linked", program)
		}
	}
}

func content(t *testing.T, folder, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// copyContext copies what .dockerignore lets in: what is named there, without tests.
func copyContext(t *testing.T, to string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(string(content(t, root, ".dockerignore"))), "\n")
	for _, want := range []string{"*", "**/*_test.go", "**/testdata"} {
		if !slices.Contains(lines, want) {
			t.Errorf(".dockerignore has no line %s, which this test takes for granted", want)
		}
	}
	for _, line := range lines {
		name, admitted := strings.CutPrefix(line, "!")
		if !admitted {
			continue
		}
		err := filepath.WalkDir(filepath.Join(root, name), func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && entry.Name() == "testdata":
				return fs.SkipDir
			case entry.IsDir() || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			return copyFile(path, filepath.Join(to, strings.TrimPrefix(path, root)))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644)
}
