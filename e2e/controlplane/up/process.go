package up

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// How long a component may take to end after SIGTERM before it is killed, and to become ready. Both are far more than
// needed on an idle machine.
const (
	stopTimeout  = 20 * time.Second
	readyTimeout = 3 * time.Minute
	pollInterval = 50 * time.Millisecond
	// restartPause keeps a component that cannot run from being started again without an end.
	restartPause = 200 * time.Millisecond
)

// group is the child processes of one control plane, in one process group of their own, so that an interrupt typed at a
// terminal reaches this process alone and the order of stopping is its.
type group struct {
	d        *directory
	end      context.CancelCauseFunc // called when a child ends
	restart  atomic.Bool             // a child that ends is started again instead
	children []*child
}

type child struct {
	name    string
	command func() *exec.Cmd
	done    chan struct{} // closed when the process is gone for good
	log     string

	mu      sync.Mutex
	process *os.Process
	leaving bool // it is to end, and not to be started again
}

// start runs a program with its output in the directory's logs.
func (g *group) start(program string, command []string) error {
	c := &child{name: command[0], done: make(chan struct{}), log: g.d.file("logs", command[0]+".log")}
	if err := os.RemoveAll(c.log); err != nil {
		return err
	}
	c.command = func() *exec.Cmd {
		cmd := exec.Command(program, command[1:]...)
		cmd.Args[0] = c.name
		cmd.Dir = g.d.path
		cmd.Env = []string{"HOME=" + g.d.path} // no setting of the user's gets in: etcd and KWOK read many
		return cmd
	}
	started := make(chan error, 1)
	go g.live(c, g.leader(), started)
	if err := <-started; err != nil {
		return fmt.Errorf("starting %s: %w", c.name, err)
	}
	g.children = append(g.children, c)
	return nil
}

// live starts the child and waits for its end on one thread, because the kernel takes the end of the thread that
// started a child for the end of its parent.
func (g *group) live(c *child, leader int, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(c.done)
	cmd, err := c.begin(leader)
	started <- err
	for err == nil {
		ended := c.ended(cmd.Wait())
		if !g.restart.Load() {
			g.end(ended)
			return
		}
		<-time.After(restartPause)
		cmd, err = c.begin(0) // the group is gone if all of them ended
	}
	if !errors.Is(err, errLeaving) {
		g.end(fmt.Errorf("starting %s again: %w", c.name, err))
	}
}

// errLeaving is why a child that is to end is not started.
var errLeaving = errors.New("it is to end")

// begin starts the child's process in the group of the leader, or, for 0, one of its own, with its output at the end of the
// log.
func (c *child) begin(leader int) (*exec.Cmd, error) {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own descriptor
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaving {
		return nil, errLeaving
	}
	cmd := c.command()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttributes(leader)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c.process = cmd.Process
	return cmd, nil
}

// signal sends a signal to the child, which is not started again after that.
func (c *child) signal(signal os.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving = true
	_ = c.process.Signal(signal) // fails only if it is gone already
}

// leader is the process group that children join, 0 to make one.
func (g *group) leader() int {
	if len(g.children) == 0 {
		return 0
	}
	return g.children[0].process.Pid
}

func (c *child) ended(err error) error {
	if err == nil {
		err = errors.New("exit status 0")
	}
	return fmt.Errorf("%s ended by itself (%w); the end of %s:\n%s", c.name, err, c.log, tail(c.log))
}

// tail is the last lines of a log, which say why a component ended.
func tail(path string) []byte {
	content, err := os.ReadFile(path)
	if err != nil {
		return []byte(err.Error())
	}
	lines := bytes.Split(bytes.TrimSpace(content), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-15):], []byte("\n"))
}

// await polls the check until it succeeds. The context ends when a child does.
func (g *group) await(ctx context.Context, what string, check func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, readyTimeout, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("waited %s for %s: %w", readyTimeout, what, last)
	}
	return nil
}

// kill lets no child finish what it does: without one of them the others would wait for it in vain.
func (g *group) kill() {
	for _, c := range g.children {
		c.signal(os.Kill)
	}
}

// stop ends the children, the last started first, so that each can still say goodbye to those it depends on.
func (g *group) stop() {
	for _, c := range slices.Backward(g.children) {
		c.stop()
	}
}

func (c *child) stop() {
	c.signal(syscall.SIGTERM)
	select {
	case <-c.done:
		return
	case <-time.After(stopTimeout):
	}
	c.signal(os.Kill)
	<-c.done
}
