package tilt_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

// What "tilt up -- --embedded" starts releases the example, and a file that is saved replaces the one program that is built
// from it, while everything else goes on. Stopped and started again, it has what it had.
func TestEmbedded(t *testing.T) {
	up := &tilt{t: t, parts: filepath.Join(t.TempDir(), "parts"), resources: load(t, true).resources}
	up.start()
	if info, err := os.Stat(up.parts); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v: the directory with the credentials is not its owner's alone", info.Mode(), err)
	}
	for program, stillWorks := range map[string]func(){
		"admission":  up.refuses,
		"reconciler": up.releases,
	} {
		up.replaces(program)
		stillWorks()
	}
	up.end()
	up.start()
	up.refuses()
	up.end()
}

// start runs everything for the first time, and wants the example to be released.
func (u *tilt) start() {
	u.t.Helper()
	u.running = map[string]*process.Process{}
	for _, r := range u.resources {
		began := time.Now()
		output := u.update(r)
		u.t.Logf("%s: %s", r.name, time.Since(began).Round(time.Millisecond))
		if r.name == "example" && !strings.Contains(output, " webshop            Ready ") {
			u.t.Errorf("the example is not Ready:\n%s", output)
		}
	}
}

// end stops everything that runs, the last first.
func (u *tilt) end() {
	u.t.Helper()
	for _, r := range slices.Backward(u.resources) {
		u.stop(r.name)
	}
}

// replaces wants a program, and nothing else, to be another process after a file of it was saved.
func (u *tilt) replaces(program string) {
	u.t.Helper()
	before := u.pids()
	began := time.Now()
	if diff := cmp.Diff([]string{program}, u.save(filepath.Join(program, "saved.go"))); diff != "" {
		u.t.Errorf("what a file of %s runs again (-want +got):\n%s", program, diff)
	}
	u.t.Logf("%s, saved, was ready after %s", program, time.Since(began).Round(time.Millisecond))
	after := u.pids()
	if before[program] == after[program] {
		u.t.Errorf("%s is the same process", program)
	}
	delete(before, program)
	delete(after, program)
	if diff := cmp.Diff(before, after); diff != "" {
		u.t.Errorf("processes besides %s (-before +after):\n%s", program, diff)
	}
	if output := u.running[program].Output(); !strings.Contains(output, saved) {
		u.t.Errorf("%s does not have what was saved:\n%s", program, output)
	}
}

// tilt does what Tilt does with local resources.
type tilt struct {
	t         *testing.T
	parts     string // where they have their data
	resources []resource
	running   map[string]*process.Process // by resource
	env       []string
}

// update runs the command of a resource, and then serves it anew, until it is ready. It returns what the command wrote.
func (u *tilt) update(r resource) string {
	u.t.Helper()
	var written string
	if r.cmd != nil {
		output, err := u.command(r.cmd).CombinedOutput()
		if err != nil {
			u.t.Fatalf("%s: %q: %v\n%s", r.name, r.cmd, err, output)
		}
		written = string(output)
	}
	if r.serve != nil {
		u.stop(r.name)
		u.serve(r)
	}
	return written
}

func (u *tilt) serve(r resource) {
	u.t.Helper()
	p, err := process.Launch(u.t.Context(), process.Options{
		Path: r.serve[0], Args: r.serve[1:], Dir: root, Env: u.environment(),
	})
	if err != nil {
		u.t.Fatalf("%s: %v", r.name, err)
	}
	u.running[r.name] = p
	u.t.Cleanup(func() { _ = p.Stop() }) // if the test ends before it stops everything itself
	cluster.Eventually(u.t, func(context.Context) error {
		select {
		case <-p.Done():
			u.t.Fatalf("%s ended (%s):\n%s", r.name, p.State(), p.Output())
		default:
		}
		return u.command(r.ready).Run()
	})
}

// stop ends the process group of a resource that is served, and is told if something had to be killed.
func (u *tilt) stop(name string) {
	u.t.Helper()
	p, runs := u.running[name]
	if !runs {
		return
	}
	delete(u.running, name)
	if err := syscall.Kill(-p.PID(), syscall.SIGTERM); err != nil {
		u.t.Errorf("%s: %v:\n%s", name, err, p.Output())
	}
	<-p.Done()
	if strings.Contains(p.Output(), "was killed") {
		u.t.Errorf("%s did not end by itself:\n%s", name, p.Output())
	}
}

// saved is what a program writes that is built with the file that save makes.
const saved = "this is what was saved"

// save has a new file in the repository, of package main, and updates what that file belongs to. It is there for the
// compiler alone, because other tests build from the same files.
func (u *tilt) save(file string) []string {
	u.t.Helper()
	path, err := filepath.Abs(filepath.Join(root, file))
	if err != nil {
		u.t.Fatal(err)
	}
	content := filepath.Join(u.t.TempDir(), "saved.go")
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: content}})
	if err != nil {
		u.t.Fatal(err)
	}
	for name, text := range map[string]string{
		content:           "package main\n\nfunc init() { println(\"" + saved + "\") }\n",
		content + ".json": string(overlay),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			u.t.Fatal(err)
		}
	}
	u.env = []string{"GOFLAGS=" + os.Getenv("GOFLAGS") + " -overlay=" + content + ".json"}
	defer func() { u.env = nil }()
	var updated []string
	for _, r := range u.resources {
		if r.watches(file) {
			updated = append(updated, r.name)
			u.update(r)
		}
	}
	return updated
}

func (u *tilt) pids() map[string]int {
	pids := map[string]int{}
	for name, p := range u.running {
		if p.State() != nil {
			u.t.Errorf("%s has ended (%s):\n%s", name, p.State(), p.Output())
		}
		pids[name] = p.PID()
	}
	return pids
}

// refuses wants a StageSet without an account to be refused by the webhook.
func (u *tilt) refuses() {
	u.t.Helper()
	output, err := u.kubectl("apply", "--filename", filepath.Join("e2e", "demo", "tenant", "refused", "no-account.yaml"))
	if err == nil || !strings.Contains(output, "service-account-required") {
		u.t.Errorf("a StageSet without an account: %v\n%s", err, output)
	}
}

// releases wants a commit to be released.
func (u *tilt) releases() {
	u.t.Helper()
	copied := filepath.Join(u.parts, "webshop")
	file := filepath.Join(copied, "shop", "deployment.yaml")
	content, err := os.ReadFile(file)
	if err != nil {
		u.t.Fatal(err)
	}
	changed := strings.Replace(string(content), "replicas: 1", "replicas: 2", 1)
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		u.t.Fatal(err)
	}
	for _, args := range [][]string{{"commit", "--quiet", "--all", "--message", "Scale it"}, {"push", "--quiet"}} {
		command := exec.CommandContext(u.t.Context(), "git", args...)
		command.Dir = copied
		if output, err := command.CombinedOutput(); err != nil {
			u.t.Fatalf("git %s: %v\n%s", args[0], err, output)
		}
	}
	output, err := u.kubectl("wait", "--namespace", "team-a", "deployment/shop", "--for=jsonpath={.spec.replicas}=2",
		"--timeout", cluster.Timeout.String())
	if err != nil {
		u.t.Errorf("%v: %s", err, output)
	}
}

// kubectl runs kubectl as the administrator.
func (u *tilt) kubectl(args ...string) (string, error) {
	u.t.Helper()
	kubeconfig := "--kubeconfig=" + filepath.Join(u.parts, "kubeconfig")
	output, err := u.command(append([]string{filepath.Join("bin", "controlplane"), "kubectl", kubeconfig}, args...)).
		CombinedOutput()
	return string(output), err
}

// command is a command as it would be typed in the root of the repository.
func (u *tilt) command(argv []string) *exec.Cmd {
	command := exec.CommandContext(u.t.Context(), argv[0], argv[1:]...)
	command.Dir = root
	command.Env = append(os.Environ(), u.environment()...)
	return command
}

// environment keeps away what the make says that runs this test, and the parts from those of somebody's Tilt.
func (u *tilt) environment() []string {
	return slices.Concat([]string{"MAKEFLAGS=", "MAKELEVEL=", "PARTS=" + u.parts}, u.env)
}
