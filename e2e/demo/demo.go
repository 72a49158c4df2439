package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/stageset/stageset/e2e/gitserver"
)

// demo is one run.
type demo struct {
	options
	screen *screen

	root     string                  // of the repository
	lock     *os.File                // of the directory, or of the part
	end      context.CancelCauseFunc // ends the run, with why
	programs []*program              // those that were started, in that order
	admin    *admin
	git      *gitserver.Server
	told     history   // of StageSets
	echo     io.Writer // of what programs write, besides the files in logs, if set
}

// step is a part of a run that a reader is told of.
type step struct {
	title string
	run   func(context.Context) (detail string, err error)
	log   string // the file in logs that says more when it fails, if there is one
	hint  string // what to do then
}

// Hints for the reader of a failure.
const (
	hintBug     = `Try "make run" again. If it fails alike, this is a bug: please report it with the logs.`
	hintCluster = "Check that the kubeconfig is an administrator's and that the cluster answers: kubectl get nodes"
)

func (d *demo) steps() []step {
	steps := []step{
		{"Build what is missing", d.build, "build.log", `Mend what the log says, and run "make run" again.`},
		{"Start a control plane", d.startControlPlane, "controlplane.log", hintBug},
		{"Install CRDs, accounts and their roles", d.install, "", hintBug},
		{"Start Flux's source-controller", d.startSourceController, "source-controller.log", hintBug},
		{"Start stageset-admission, the webhooks", d.startAdmission, "stageset-admission.log", hintBug},
		{"Start stageset-reconciler", d.startReconciler, "stageset-reconciler.log", hintBug},
		{"Make a tenant: an account with edit in namespace team-a", d.makeTenant, "", hintBug},
		{"Give it a Git repository with a release of two stages", d.makeRepository, "source-controller.log", hintBug},
		{"The tenant applies a StageSet", d.release, "stageset-reconciler.log", hintBug},
		{"What is refused", d.refusals, "stageset-admission.log", hintBug},
	}
	if d.kubeconfig != "" {
		steps[1] = step{"Look at the cluster of " + filepath.Base(d.kubeconfig), d.connect, "", hintCluster}
	}
	return steps
}

// run is everything from the first line to the last; it returns the exit code.
func (d *demo) run(ctx context.Context) int {
	ctx, d.end = context.WithCancelCause(ctx)
	defer d.end(nil)
	err := d.open()
	if err != nil {
		d.screen.failed(err.Error(), "", nil, "Mend that, and try again.")
		return exitFailure
	}
	defer d.lock.Close()
	code := d.perform(ctx)
	if !d.leave() {
		code = max(code, exitFailure)
	}
	return code
}

func (d *demo) open() error {
	var err error
	if d.root, err = repository(); err != nil {
		return err
	}
	if d.lock, err = openDirectory(d.dir, d.kubeconfig); err != nil {
		return err
	}
	d.screen.heading(fmt.Sprintf("StageSet at work. All of it is on this machine, with data and logs in %s.", d.short(d.dir)))
	return nil
}

// perform goes through the steps, and then waits to be interrupted.
func (d *demo) perform(ctx context.Context) int {
	for _, step := range d.steps() {
		d.screen.begin(step.title)
		detail, err := step.run(ctx)
		if code := d.judge(ctx, err, step); code != 0 {
			return code
		}
		d.screen.done(detail)
	}
	if d.once {
		return 0
	}
	d.explain()
	err := d.follow(ctx)
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return 0 // which is how this is meant to end
	}
	return d.judge(ctx, err, step{hint: hintBug})
}

// judge tells the reader of an error of a step, and returns the exit code that it means.
func (d *demo) judge(ctx context.Context, err error, step step) int {
	if err == nil {
		return 0
	}
	if ctx.Err() != nil {
		// Whatever the step says is a consequence.
		err = context.Cause(ctx)
	}
	if errors.Is(err, context.Canceled) {
		d.screen.blank()
		d.screen.line("Interrupted.")
		return exitInterrupted
	}
	log := step.log
	if failed := new(programError); errors.As(err, &failed) {
		log = failed.log
	}
	var end []string
	if log != "" {
		end = tail(d.file("logs", log))
		log = d.short(d.file("logs", log))
	}
	d.screen.failed(err.Error(), log, end, step.hint)
	return exitFailure
}

// tail is the end of a log, or nothing if that is not there.
func tail(path string) []string {
	const lines = 5
	content, err := os.ReadFile(path)
	if err != nil || len(content) == 0 {
		return nil
	}
	all := strings.Split(strings.TrimSpace(string(content)), "\n")
	return all[max(0, len(all)-lines):]
}

// leave takes back what the run did to the machine, and to a cluster that is not its own. It returns whether all of it
// worked.
func (d *demo) leave() bool {
	ok := true
	tell := func(err error) {
		if err != nil {
			ok = false
			d.screen.text("While ending: %v", err)
		}
	}
	d.screen.ending()
	if d.kubeconfig != "" && d.admin != nil {
		tell(d.uninstall())
	}
	tell(d.stop())
	if ok {
		d.screen.done("Logs stay in " + d.short(d.file("logs")))
	}
	return ok
}

// file is the absolute path of a file of the run's directory.
func (d *demo) file(elements ...string) string {
	return filepath.Join(append([]string{d.dir}, elements...)...)
}

// short is a path as a reader in the root of the repository would type it.
func (d *demo) short(path string) string {
	if within(d.root, path) {
		if relative, err := filepath.Rel(d.root, path); err == nil {
			return relative
		}
	}
	return path
}

// write writes a file of the run's directory, readable by its owner alone, and returns its path.
func (d *demo) write(name string, content []byte) (string, error) {
	path := d.file(name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return "", fmt.Errorf("writing %s: %w", name, err)
	}
	return path, nil
}
