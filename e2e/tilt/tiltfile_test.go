package tilt_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

func TestTiltfileIsShort(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "Tiltfile"))
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(content), "\n"); lines > 60 {
		t.Errorf("%d lines, at most 60", lines)
	}
}

// ways are the two ways to start Tilt.
var ways = map[string]bool{"cluster": false, "embedded": true}

// Everything that the Tiltfile names exists.
func TestResources(t *testing.T) {
	for way, embedded := range ways {
		t.Run(way, func(t *testing.T) {
			var before []string
			for _, r := range load(t, embedded).resources {
				for _, other := range r.after {
					if !slices.Contains(before, other) {
						t.Errorf("%s comes after %s, which is none of %v", r.name, other, before)
					}
				}
				before = append(before, r.name)
				for _, command := range [][]string{r.cmd, r.serve, r.ready} {
					isMade(t, command)
				}
				if (r.serve == nil) != (r.ready == nil) {
					t.Errorf("%s has either a command to serve with or one that says whether it does", r.name)
				}
				for _, dep := range r.deps {
					if _, err := os.Stat(filepath.Join(root, dep)); err != nil {
						t.Errorf("%s: %v", r.name, err)
					}
					if top, _, _ := strings.Cut(dep, "/"); top == "." || top == "bin" || top == ".run" {
						t.Errorf("%s watches %s, where commands write: it would be run without an end", r.name, dep)
					}
				}
			}
		})
	}
}

// isMade checks that a command, if there is one, is of targets that the Makefile has.
func isMade(t *testing.T, command []string) {
	t.Helper()
	if command == nil {
		return
	}
	if command[0] != "make" {
		t.Errorf("%q is no make target, which CI could run", command)
		return
	}
	dry := exec.CommandContext(t.Context(), "make", append([]string{"--dry-run"}, command[1:]...)...)
	dry.Dir = root
	dry.Env = append(os.Environ(), "MAKEFLAGS=") // those of the make that runs this test
	if output, err := dry.CombinedOutput(); err != nil {
		t.Errorf("%q: %v\n%s", command, err, output)
	}
}

// A program is built again after a change of what it is built from, and only then.
func TestProgramsAreBuiltFromWhatIsWatched(t *testing.T) {
	for _, program := range []string{"admission", "reconciler"} {
		files := sources(t, program)
		for way, resource := range map[string]string{"cluster": program + "-program", "embedded": program} {
			t.Run(way+" "+program, func(t *testing.T) {
				watched := load(t, ways[way]).resource(t, resource).watched(t)
				if diff := cmp.Diff(files, watched); diff != "" {
					t.Errorf("files that it is built from, and files that are watched (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func (f *tiltfile) resource(t *testing.T, name string) resource {
	t.Helper()
	for _, r := range f.resources {
		if r.name == name {
			return r
		}
	}
	t.Fatalf("there is no resource %s", name)
	return resource{}
}

// sources are the files of this module that a program is built from, on whatever machine.
func sources(t *testing.T, program string) []string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=Dir,Module,GoFiles,IgnoredGoFiles,EmbedFiles",
		"./"+program)
	command.Dir = root
	output, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := []string{"go.mod", "go.sum"}
	for decoder := json.NewDecoder(bytes.NewReader(output)); decoder.More(); {
		var listed struct {
			Dir                                 string
			Module                              *struct{ Main bool }
			GoFiles, IgnoredGoFiles, EmbedFiles []string
		}
		if err := decoder.Decode(&listed); err != nil {
			t.Fatal(err)
		}
		if listed.Module == nil || !listed.Module.Main {
			continue
		}
		for _, name := range slices.Concat(listed.GoFiles, listed.IgnoredGoFiles, listed.EmbedFiles) {
			if !strings.HasSuffix(name, "_test.go") {
				files = append(files, relative(t, filepath.Join(listed.Dir, name)))
			}
		}
	}
	slices.Sort(files)
	return files
}

// relative is a path as from the root.
func relative(t *testing.T, file string) string {
	t.Helper()
	absolute, err := filepath.Abs(root)
	if err == nil {
		file, err = filepath.Rel(absolute, file)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// watched are the files whose change runs a resource again.
func (r resource) watched(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, dep := range r.deps {
		err := filepath.WalkDir(filepath.Join(root, dep), func(file string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			file, err = filepath.Rel(root, file)
			if err == nil && r.watches(file) {
				files = append(files, file)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(files)
	return files
}

// watches says whether a change of a file, or that it is new, runs a resource again.
func (r resource) watches(file string) bool {
	covers := func(pattern string) bool {
		if name, anywhere := strings.CutPrefix(pattern, "**/"); anywhere {
			return slices.ContainsFunc(strings.Split(file, "/"), func(element string) bool {
				matches, err := path.Match(name, element)
				return err == nil && matches
			})
		}
		return file == pattern || strings.HasPrefix(file, pattern+"/")
	}
	return slices.ContainsFunc(r.deps, covers) && !slices.ContainsFunc(r.ignore, covers)
}

// In a cluster each program has an image, into which what is compiled here is copied, and which the chart's Pods run.
func TestImages(t *testing.T) {
	f := load(t, false)
	deployments := deployments(t, strings.Join(f.manifests, "\n---\n"))
	for _, image := range f.images {
		t.Run(image.ref, func(t *testing.T) {
			program := path.Base(image.ref)
			compiled := strings.TrimPrefix(program, "stageset-") + "-program"
			if diff := cmp.Diff([]string{compiled}, f.workloads[program]); diff != "" {
				t.Errorf("the workload comes after (-want +got):\n%s", diff)
			}
			for _, want := range []string{"PROGRAMS=" + program, "RELEASE=" + image.context, "GOOS=linux"} {
				if cmd := f.resource(t, compiled).cmd; !slices.Contains(cmd, want) {
					t.Errorf("%q has no %s", cmd, want)
				}
			}
			if image.synced != image.context {
				t.Errorf("%s is copied, but %s is what the image is made from", image.synced, image.context)
			}
			deployment, installed := deployments[program]
			if !installed {
				t.Fatalf("the chart has no Deployment %s", program)
			}
			container := deployment.Spec.Template.Spec.Containers[0]
			if ref, _, _ := strings.Cut(container.Image, ":"); ref != image.ref {
				t.Errorf("its Pods run %s", container.Image)
			}
			if container.Command != nil {
				t.Errorf("its Pods run %q rather than the image's first process", container.Command)
			}
			if *container.SecurityContext.ReadOnlyRootFilesystem {
				t.Error("nothing can be copied into its Pods")
			}
			content, err := os.ReadFile(filepath.Join(root, image.dockerfile))
			if err != nil {
				t.Fatal(err)
			}
			if want := "\nWORKDIR " + image.to + "\n"; !strings.Contains(string(content), want) {
				t.Errorf("%s has no line %q", image.dockerfile, want)
			}
		})
	}
	if len(f.images) != len(deployments) {
		t.Errorf("%d images for %d Deployments", len(f.images), len(deployments))
	}
}

// deployments are those of manifests, by name.
func deployments(t *testing.T, manifests string) map[string]appsv1.Deployment {
	t.Helper()
	found := map[string]appsv1.Deployment{}
	reader := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(manifests)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		var deployment appsv1.Deployment
		if err := yaml.Unmarshal(document, &deployment); err != nil {
			t.Fatal(err)
		}
		if deployment.Kind == "Deployment" {
			found[deployment.Name] = deployment
		}
	}
}
