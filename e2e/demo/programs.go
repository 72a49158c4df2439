package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/stageset/stageset/e2e/process"
)

// program is a process that a run has started.
type program struct {
	*process.Process
	name string
	log  *os.File
}

// programError is what is wrong with a program; more is in its log.
type programError struct {
	name, log string // of the program, and of the file in logs
	err       error
}

func (e *programError) Error() string { return e.name + ": " + e.err.Error() }
func (e *programError) Unwrap() error { return e.err }

// start runs a program of bin, with its output in a file of logs, and waits until it is ready. If it ends before it is
// stopped, the run does too.
func (d *demo) start(ctx context.Context, name string, options process.Options) error {
	log, err := os.Create(d.file("logs", name+".log"))
	if err != nil {
		return err
	}
	options.Path = d.binary(name)
	options.Dir = d.dir
	options.Log = log
	if d.echo != nil {
		options.Log = io.MultiWriter(log, d.echo)
	}
	started, err := process.Launch(ctx, options)
	if err != nil {
		// The error's text has the whole output in it, which is in the file.
		if inner := errors.Unwrap(err); inner != nil {
			err = inner
		}
		return errors.Join(&programError{name: name, log: name + ".log", err: err}, log.Close())
	}
	d.programs = append(d.programs, &program{Process: started, name: name, log: log})
	go func() {
		<-started.Done()
		d.end(&programError{name: name, log: name + ".log", err: fmt.Errorf("it ended by itself (%s)", started.State())})
	}()
	return d.noteAddress(options.ReadyURL)
}

// stop stops everything that was started.
func (d *demo) stop() error {
	err := d.stopPrograms()
	if d.git != nil {
		err = errors.Join(err, d.git.Close())
		d.git = nil
	}
	return err
}

// stopPrograms stops them, the last started first, so that each can still say goodbye to those it depends on.
func (d *demo) stopPrograms() error {
	var problems []error
	for _, p := range slices.Backward(d.programs) {
		if err := p.Stop(); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", p.name, err))
		}
		problems = append(problems, p.log.Close())
	}
	d.programs = nil
	return errors.Join(problems...)
}

// binary is a program of bin. For parts, those of the product are built beside their data: whatever else runs those of bin
// is not to have them replaced at every save.
func (d *demo) binary(name string) string {
	if d.part != "" && strings.HasPrefix(name, "stageset-") {
		return d.file("bin", name)
	}
	return filepath.Join(d.root, "bin", name)
}

// build makes what is missing in bin, with the Makefile.
func (d *demo) build(ctx context.Context) (string, error) {
	slow := []string{"bin/source-controller", "bin/source-controller-crds"}
	if d.needsControlPlane() {
		slow = append(slow, "bin/controlplane", "bin/kwok")
	}
	question := d.make(ctx, append([]string{"--question"}, slow...)...)
	if err := question.Run(); err != nil && ctx.Err() == nil {
		d.screen.line("The first time this takes 10 to 30 minutes. To follow it: tail -f %s", d.short(d.file("logs", "build.log")))
	}
	log, err := os.Create(d.file("logs", "build.log"))
	if err != nil {
		return "", err
	}
	defer log.Close()
	// The Go command itself knows whether these are up to date.
	build := d.make(ctx, append(slow, "bin/stageset-admission", "bin/stageset-reconciler")...)
	build.Stdout, build.Stderr = log, log
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("make: %w", err)
	}
	return "", nil
}

// needsControlPlane says whether bin/controlplane is used: to start a cluster, or as kubectl.
func (d *demo) needsControlPlane() bool {
	if d.kubeconfig == "" {
		return true
	}
	_, err := exec.LookPath("kubectl")
	return err != nil
}

// make is a run of the Makefile that knows nothing of the one that runs this program. Cancelling ends its children too.
func (d *demo) make(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "make", append([]string{"--no-print-directory"}, args...)...)
	command.Dir = d.root
	command.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains([]string{"MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL", "KUBECONFIG"}, name)
	})
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second
	return command
}

func (d *demo) startControlPlane(ctx context.Context) (string, error) {
	kubeconfig := d.file("kubeconfig")
	err := d.start(ctx, "controlplane", process.Options{
		Args:        []string{"up", "--dir", d.dir, "--kubeconfig", kubeconfig, "--with-nodes", "--stop-on-eof"},
		ReadyOutput: "control plane ready",
	})
	if err != nil {
		return "", err
	}
	if d.admin, err = newAdmin(kubeconfig); err != nil {
		return "", err
	}
	return d.admin.describe()
}

func (d *demo) startSourceController(ctx context.Context) (string, error) {
	kubeconfig, err := d.accountKubeconfig(ctx, "flux-system", "source-controller")
	if err != nil {
		return "", err
	}
	addresses, err := freeAddresses(2)
	if err != nil {
		return "", err
	}
	serving, health := addresses[0], addresses[1]
	return "serves artifacts at " + serving, d.start(ctx, "source-controller", process.Options{
		Args: []string{
			"--watch-all-namespaces", "--enable-leader-election=false", "--metrics-addr=0", "--events-addr=",
			"--storage-path=" + d.file("sources"), "--storage-addr=" + serving, "--storage-adv-addr=" + serving,
			"--health-addr=" + health,
		},
		Env:      []string{"KUBECONFIG=" + kubeconfig, "RUNTIME_NAMESPACE=flux-system"},
		ReadyURL: "http://" + health + "/readyz",
	})
}

func (d *demo) startReconciler(ctx context.Context) (string, error) {
	kubeconfig, err := d.accountKubeconfig(ctx, system, "stageset-reconciler")
	if err != nil {
		return "", err
	}
	addresses, err := freeAddresses(1)
	if err != nil {
		return "", err
	}
	hashKey, err := d.hashKey()
	if err != nil {
		return "", err
	}
	return "as account " + system + "/stageset-reconciler", d.start(ctx, "stageset-reconciler", process.Options{
		Args: []string{
			"--kubeconfig=" + kubeconfig, "--namespace=" + system, "--leader-elect=false", "--log-format=text",
			"--policy-config=" + d.file("policy-config.yaml"), "--hash-key-file=" + hashKey,
			"--artifact-cache-dir=" + d.file("artifacts"), "--artifact-hosts=127.0.0.1", "--dial-allow=127.0.0.0/8",
			"--metrics-bind-address=0", "--health-probe-bind-address=" + addresses[0],
		},
		ReadyURL: "http://" + addresses[0] + "/readyz",
	})
}

// hashKey is the file of the key of the hashes in inventories. A reconciler that is started again has the same.
func (d *demo) hashKey() (string, error) {
	const name = "hash-key"
	if _, err := os.Stat(d.file(name)); err == nil {
		return d.file(name), nil
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return d.write(name, key)
}

// freeAddresses are loopback addresses on which nobody listens now.
func freeAddresses(count int) ([]string, error) {
	var addresses []string
	for range count {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close() // after all are chosen, so that they differ
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses, nil
}
