package process_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/stageset/stageset/e2e/process"
)

// parentVariable makes this test binary a parent that starts a child and waits to be killed.
const parentVariable = "PROCESS_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentVariable) == "" {
		os.Exit(m.Run())
	}
	child, err := process.Launch(context.Background(), shell("while :; do sleep 1; done"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(child.PID())
	<-child.Done()
}

// shell runs a script; exec in it replaces the shell, so that signals reach what runs.
func shell(script string) process.Options {
	return process.Options{Path: "/bin/sh", Args: []string{"-c", script}}
}

func TestReadyIsWaitedFor(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	options := shell("echo it is up; exec sleep 60")
	options.ReadyOutput = "it is up"
	options.ReadyURL = server.URL
	p := process.Start(t, options)
	if got := asked.Load(); got != 3 {
		t.Errorf("asked %d times, want 3", got)
	}
	if p.State() != nil {
		t.Error("it has ended")
	}
}

func TestEndBeforeReadyIsAnErrorWithTheOutput(t *testing.T) {
	options := shell("echo the reason; echo more >&2; exit 3")
	options.ReadyOutput = "never written"
	var log strings.Builder
	options.Log = &log
	_, err := process.Launch(t.Context(), options)
	if err == nil {
		t.Fatal("it started")
	}
	if log.String() != "the reason\nmore\n" {
		t.Errorf("log %q", log.String())
	}
	for _, want := range []string{"/bin/sh", "exit status 3", "the reason\nmore\n"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not contain %q", err, want)
		}
	}
}

func TestGivingUpLetsTheProcessFinish(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	options := shell(`trap 'echo said goodbye; exit 0' TERM; echo trap set; while :; do sleep 0.01; done`)
	options.ReadyOutput = "never written"
	options.Log = &cancelling{at: "trap set", cancel: cancel}
	_, err := process.Launch(ctx, options)
	if err == nil || !strings.HasSuffix(err.Error(), "trap set\nsaid goodbye\n") {
		t.Errorf("got %v", err)
	}
}

// cancelling cancels a context when a text is written.
type cancelling struct {
	at     string
	cancel context.CancelFunc
}

func (c *cancelling) Write(p []byte) (int, error) {
	if strings.Contains(string(p), c.at) {
		c.cancel()
	}
	return len(p), nil
}

func TestMissingBinaryIsNamed(t *testing.T) {
	_, err := process.Launch(t.Context(), process.Options{Path: "/nowhere/binary"})
	if err == nil || !strings.Contains(err.Error(), "/nowhere/binary") {
		t.Errorf("got %v", err)
	}
}

func TestStopLetsTheProcessFinish(t *testing.T) {
	options := shell(`trap 'echo said goodbye; exit 0' TERM; echo ready; while :; do sleep 0.01; done`)
	options.ReadyOutput = "ready"
	p := process.Start(t, options)
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if !strings.HasSuffix(p.Output(), "said goodbye\n") {
		t.Errorf("output %q", p.Output())
	}
	if err := p.Stop(); err != nil {
		t.Errorf("the second time: %v", err)
	}
}

func TestStopTellsOfAFailure(t *testing.T) {
	options := shell(`trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done`)
	options.ReadyOutput = "ready"
	p, err := process.Launch(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(); err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("got %v, want exit status 7", err)
	}
}

func TestKillDoesNotAsk(t *testing.T) {
	options := shell(`trap '' TERM; echo ready; while :; do sleep 0.01; done`)
	options.ReadyOutput = "ready"
	p := process.Start(t, options)
	p.Kill()
	status := p.State().Sys().(syscall.WaitStatus)
	if !status.Signaled() || status.Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %s", p.State())
	}
}

func TestChildDiesWithAKilledParent(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(self)
	parent.Env = append(os.Environ(), parentVariable+"=yes")
	stdout, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // says that it was killed
	gone := func(context.Context) (bool, error) { return !alive(child), nil }
	if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, gone); err != nil {
		t.Errorf("process %d outlives its parent", child)
	}
}

// alive is false for a process that is gone, or that waits for somebody to ask how it ended.
func alive(pid int) bool {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return false
	}
	return !strings.Contains(string(content), ") Z ")
}

func TestOutputIsBounded(t *testing.T) {
	const limit = 1 << 20
	options := shell(`for i in 0 1 2 3; do head -c 1048576 /dev/zero | tr '\0' $i; done; echo; echo last; exec sleep 60`)
	options.ReadyOutput = "\nlast\n"
	p := process.Start(t, options)
	if got := len(p.Output()); got != limit {
		t.Errorf("%d bytes are kept, want %d", got, limit)
	}
	if !strings.HasSuffix(p.Output(), "3333\nlast\n") {
		t.Error("it is not the end that is kept")
	}
}

func TestFreePortIsFree(t *testing.T) {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", process.FreePort(t)))
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Error(err)
	}
}
