// Package process runs a built binary for a test as a user would start it: as a process of its own, with its output
// kept, until it is stopped, killed, or the test ends; and it leads connections to one or another, as a Service does.
//
// It never reads a process table and never ends a process that it did not start.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	readyTimeout = 2 * time.Minute // a machine that is busy with a build is slow
	stopTimeout  = 30 * time.Second
	pollInterval = 20 * time.Millisecond
)

// Options say what to run.
type Options struct {
	// Path of the binary, and what it is given.
	Path string
	Args []string
	// Env is added to the environment of the test ("KEY=value").
	Env []string
	// Dir is where it runs; empty for the directory of the test.
	Dir string
	// Log, if set, also gets what the process writes, standard output and error in one.
	Log io.Writer
	// ReadyURL, if set, is polled until it answers 200.
	ReadyURL string
	// ReadyOutput, if set, is text that the process writes when it is ready.
	ReadyOutput string
}

// Process is a process that runs or ran. Its methods are safe for concurrent use.
type Process struct {
	options Options
	cmd     *exec.Cmd
	stdin   io.Closer // held open: a process that watches it notices that this one is gone
	output  output
	done    chan struct{} // closed when it is gone and its output is complete
	err     error         // of Wait; to be read after done
}

// Start runs the binary, waits until it is ready, and stops it at the end of the test. If the test failed, the end of
// the output is in its log.
func Start(t testing.TB, options Options) *Process {
	t.Helper()
	p, err := Launch(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("output of %s:\n%s", options.Path, p.Output())
		}
	})
	return p
}

// Launch runs the binary and waits until it is ready. The process outlives the context, which ends only the waiting;
// on an error nothing runs.
func Launch(ctx context.Context, options Options) (*Process, error) {
	p := &Process{options: options, cmd: exec.Command(options.Path, options.Args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), options.Env...)
	p.cmd.Dir = options.Dir
	var written io.Writer = &p.output
	if options.Log != nil {
		written = io.MultiWriter(written, options.Log)
	}
	p.cmd.Stdout, p.cmd.Stderr = written, written // equal, so that both come through one pipe
	p.cmd.SysProcAttr = attributes()
	p.cmd.WaitDelay = time.Second // a grandchild may hold the output open
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.stdin = stdin
	started := make(chan error, 1)
	go p.live(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", options.Path, err)
	}
	if err := p.awaitReady(ctx); err != nil {
		_ = p.Stop() // rather than Kill: it may have children of its own to end
		return nil, fmt.Errorf("%s: %w; its output:\n%s", options.Path, err, p.Output())
	}
	return p, nil
}

// live starts the process and waits for its end on one thread, because the kernel takes the end of the thread that
// started a child for the end of its parent.
func (p *Process) live(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	close(p.done)
}

func (p *Process) awaitReady(ctx context.Context) error {
	last := errors.New("not asked yet")
	err := wait.PollUntilContextTimeout(ctx, pollInterval, readyTimeout, true, func(ctx context.Context) (bool, error) {
		select {
		case <-p.done:
			return false, fmt.Errorf("it ended before it was ready (%s)", p.cmd.ProcessState)
		default:
		}
		last = p.ready(ctx)
		return last == nil, nil
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("not ready: %w", last)
	}
	return err
}

func (p *Process) ready(ctx context.Context) error {
	if text := p.options.ReadyOutput; text != "" && !p.output.contains(text) {
		return fmt.Errorf("it has not written %q", text)
	}
	if p.options.ReadyURL == "" {
		return nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.options.ReadyURL, nil)
	if err != nil {
		return err
	}
	response, err := readyClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", p.options.ReadyURL, response.Status)
	}
	return nil
}

// Stop asks the process to end (SIGTERM) and waits until it is gone. It is an error if that takes so long that it has
// to be killed, or if the process says that it failed. Stopping what is already gone is none.
func (p *Process) Stop() error {
	select {
	case <-p.done:
		return nil
	default:
	}
	defer p.stdin.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails only if it is gone
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
		p.Kill()
		return fmt.Errorf("%s was still there %s after SIGTERM and was killed", p.options.Path, stopTimeout)
	}
	if exit := new(exec.ExitError); errors.As(p.err, &exit) && !terminated(exit) {
		return fmt.Errorf("%s ended with %w after SIGTERM", p.options.Path, p.err)
	}
	return nil
}

// terminated says whether SIGTERM itself ended the process: one without a handler.
func terminated(exit *exec.ExitError) bool {
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGTERM
}

// Kill ends the process at once (SIGKILL), as a crash would, and waits until it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails only if it is gone
	<-p.done
	_ = p.stdin.Close()
}

// Done is closed when the process is gone.
func (p *Process) Done() <-chan struct{} { return p.done }

// State is how the process ended and what it used; nil while it runs.
func (p *Process) State() *os.ProcessState {
	select {
	case <-p.done:
		return p.cmd.ProcessState
	default:
		return nil
	}
}

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Output is the last MiB of what the process wrote, standard output and error in one.
func (p *Process) Output() string { return p.output.String() }

// FreePort is a port of 127.0.0.1 on which nobody listens now. It is below those that Linux gives to outgoing connections and
// to who asks for any port: one of these would often be taken again before the program that is told of it listens.
func FreePort(t testing.TB) int {
	t.Helper()
	const lowest, highest, tries = 16 << 10, 30 << 10, 100
	var err error
	for range tries {
		port := lowest + rand.IntN(highest-lowest)
		var listener net.Listener
		if listener, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			listener.Close()
			return port
		}
	}
	t.Fatalf("no port is free: %v", err)
	return 0
}
