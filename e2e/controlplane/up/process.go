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
)

// group is the child processes of one control plane, in one process group of their own, so that an interrupt typed at a
// terminal reaches this process alone and the order of stopping is its.
type group struct {
	d        *directory
	end      context.CancelCauseFunc // called when a child ends
	children []*child
}

type child struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when the process is gone
	log  string
}

// start runs a program with its output in the directory's logs.
func (g *group) start(program string, command []string) error {
	c := &child{name: command[0], done: make(chan struct{}), log: g.d.file("logs", command[0]+".log")}
	log, err := os.Create(c.log)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own descriptor
	c.cmd = exec.Command(program, command[1:]...)
	c.cmd.Args[0] = command[0]
	c.cmd.Dir = g.d.path
	c.cmd.Env = []string{"HOME=" + g.d.path} // no setting of the user's gets in: etcd and KWOK read many
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.SysProcAttr = childAttributes(g.leader())
	started := make(chan error, 1)
	go c.live(started, g.end)
	if err := <-started; err != nil {
		return fmt.Errorf("starting %s: %w", c.name, err)
	}
	g.children = append(g.children, c)
	return nil
}

// live starts the child and waits for its end on one thread, because the kernel takes the end of the thread that
// started a child for the end of its parent.
func (c *child) live(started chan<- error, end context.CancelCauseFunc) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	err = c.cmd.Wait()
	close(c.done)
	end(c.ended(err))
}

// leader is the process group that children join, 0 to make one.
func (g *group) leader() int {
	if len(g.children) == 0 {
		return 0
	}
	return g.children[0].cmd.Process.Pid
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
		_ = c.cmd.Process.Kill() // fails only if it is gone already
	}
}

// stop ends the children, the last started first, so that each can still say goodbye to those it depends on.
func (g *group) stop() {
	for _, c := range slices.Backward(g.children) {
		c.stop()
	}
}

func (c *child) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // fails only if it is gone already
	select {
	case <-c.done:
		return
	case <-time.After(stopTimeout):
	}
	_ = c.cmd.Process.Kill()
	<-c.done
}
