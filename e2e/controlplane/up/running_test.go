package up_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// running is "up" as a user starts it.
type running struct {
	cmd    *exec.Cmd
	dir    string
	stdin  io.WriteCloser
	stderr *bytes.Buffer // to be read after wait
	ended  chan struct{}
	pids   map[int]string // the children, once looked up
}

// start runs "up" until it says that it is ready, and ends it with the test.
func start(t *testing.T, dir string, flags ...string) *running {
	t.Helper()
	r := &running{dir: dir, stderr: &bytes.Buffer{}, ended: make(chan struct{})}
	r.cmd = exec.Command(binary(t), append([]string{"up", "--dir", dir}, flags...)...)
	r.cmd.Stderr = r.stderr
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	go func() {
		_ = r.cmd.Wait() // its result is in ProcessState
		close(r.ended)
	}()
	t.Cleanup(func() {
		if r.cmd.Process.Signal(syscall.SIGTERM) == nil {
			r.wait(t)
		}
	})
	if err != nil || !strings.HasPrefix(line, "control plane ready: KUBECONFIG="+filepath.Join(dir, "kubeconfig")) {
		_ = r.cmd.Process.Kill()
		<-r.ended
		t.Fatalf("it says %q (%v): %s", line, err, r.stderr)
	}
	r.children(t)
	return r
}

func (r *running) end(t *testing.T, signal syscall.Signal) int {
	t.Helper()
	if err := r.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	return r.wait(t)
}

// wait returns the exit code, -1 after a signal.
func (r *running) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-r.ended:
		return r.cmd.ProcessState.ExitCode()
	case <-time.After(timeout):
		t.Fatalf("process %d does not end", r.cmd.Process.Pid)
		return 0
	}
}

// config is what the kubeconfig says.
func (r *running) config(t *testing.T) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(r.dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// children are the processes that "up" has started, with their names, as the first call finds them.
func (r *running) children(t *testing.T) map[int]string {
	t.Helper()
	if r.pids != nil {
		return r.pids
	}
	r.pids = map[int]string{}
	for pid, status := range processes(t) {
		if status["PPid"] == strconv.Itoa(r.cmd.Process.Pid) {
			r.pids[pid] = commandName(t, pid)
		}
	}
	return r.pids
}

// waitNothingLeft fails the test if a child of "up" or a listener on one of its ports outlives it. The kernel needs a
// moment after SIGKILL.
func (r *running) waitNothingLeft(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(timeout)
	for tick := time.Tick(10 * time.Millisecond); ; <-tick {
		left := r.left(t)
		if left == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(left)
		}
	}
}

func (r *running) left(t *testing.T) error {
	t.Helper()
	present := processes(t)
	for pid, name := range r.pids {
		if status, ok := present[pid]; ok && !strings.HasPrefix(status["State"], "Z") {
			return errors.New(name + " still runs as process " + strconv.Itoa(pid))
		}
	}
	host, err := url.Parse(r.config(t).Host)
	if err != nil {
		t.Fatal(err)
	}
	if connection, err := net.Dial("tcp", host.Host); err == nil {
		_ = connection.Close()
		return errors.New("somebody still listens on " + host.Host)
	}
	return nil
}

// processes are the fields of /proc/PID/status of every process.
func processes(t *testing.T) map[int]map[string]string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		t.Fatal(err)
	}
	result := map[int]map[string]string{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // it ended between the two looks
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			t.Fatal(err)
		}
		result[pid] = map[string]string{}
		for line := range strings.Lines(string(content)) {
			key, value, _ := strings.Cut(line, ":")
			result[pid][key] = strings.TrimSpace(value)
		}
	}
	return result
}

// commandName is the first argument of a process, which "up" sets to the component's name.
func commandName(t *testing.T, pid int) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ := strings.Cut(string(content), "\x00")
	return name
}

func client(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	result, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// binary is bin/controlplane, which the Makefile builds before these tests.
func binary(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../../bin/controlplane")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: make bin/controlplane", err)
	}
	return path
}
