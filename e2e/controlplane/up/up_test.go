package up_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Much longer than a start or a stop takes, so that a busy machine fails no test.
const timeout = 3 * time.Minute

func TestSecondStartResumesTheCluster(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{
		"after SIGTERM": syscall.SIGTERM,
		"after SIGKILL": syscall.SIGKILL,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			first := start(t, dir)
			config := first.config(t)
			_, err := client(t, config).CoreV1().ConfigMaps("default").Create(t.Context(),
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			first.end(t, signal)
			first.waitNothingLeft(t)

			second := start(t, dir)
			if _, err := client(t, second.config(t)).CoreV1().ConfigMaps("default").Get(t.Context(), "kept",
				metav1.GetOptions{}); err != nil {
				t.Errorf("what was stored before: %v", err)
			}
			if got := second.config(t); got.BearerToken != config.BearerToken || !bytes.Equal(got.CAData, config.CAData) {
				t.Error("the second start has other credentials")
			}
		})
	}
}

func TestSignalLeavesNothingBehind(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{
		"SIGINT":  syscall.SIGINT,
		"SIGTERM": syscall.SIGTERM,
		"SIGKILL": syscall.SIGKILL,
	} {
		t.Run(name, func(t *testing.T) {
			up := start(t, t.TempDir(), "--with-nodes")
			if got, want := len(up.children(t)), 5; got != want {
				t.Fatalf("%d children, want %d", got, want)
			}
			code := up.end(t, signal)
			up.waitNothingLeft(t)
			if want := 0; signal != syscall.SIGKILL && code != want {
				t.Errorf("exit code %d, want %d: %s", code, want, up.stderr)
			}
		})
	}
}

func TestEndOfInputIsASignal(t *testing.T) {
	up := start(t, t.TempDir(), "--stop-on-eof")
	up.children(t)
	if err := up.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if code := up.wait(t); code != 0 {
		t.Errorf("exit code %d, want 0: %s", code, up.stderr)
	}
	up.waitNothingLeft(t)
}

func TestEndOfAComponentEndsTheControlPlane(t *testing.T) {
	up := start(t, t.TempDir())
	for pid, name := range up.children(t) {
		if name == "etcd" {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	if code := up.wait(t); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if want := "etcd ended by itself (signal: killed)"; !strings.Contains(up.stderr.String(), want) {
		t.Errorf("stderr %q does not contain %q", up.stderr, want)
	}
	up.waitNothingLeft(t)
}

// With --restart, what was stored is there again, at the same address, whichever component was killed.
func TestComponentsAreRestarted(t *testing.T) {
	up := start(t, t.TempDir(), "--restart")
	admin := client(t, up.config(t))
	for pid, name := range up.children(t) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	deadline := time.Now().Add(timeout)
	for tick := time.Tick(100 * time.Millisecond); ; <-tick {
		_, err := admin.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(t.Context(), "default", metav1.GetOptions{})
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	up.pids = nil
	if got, want := len(up.children(t)), 3; got != want {
		t.Errorf("%d components run, want %d", got, want)
	}
	if code := up.end(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d, want 0: %s", code, up.stderr)
	}
	up.waitNothingLeft(t)
}

func TestTwoRunSideBySide(t *testing.T) {
	one, two := start(t, t.TempDir()), start(t, t.TempDir())
	if one.config(t).Host == two.config(t).Host {
		t.Fatalf("both are at %s", one.config(t).Host)
	}
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "only-one"}}
	if _, err := client(t, one.config(t)).CoreV1().Namespaces().Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	namespaces, err := client(t, two.config(t)).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range namespaces.Items {
		if namespace.Name == made.Name {
			t.Error("what was made in one is in the other")
		}
	}
}

func TestDirectoryInUseIsRefused(t *testing.T) {
	dir := t.TempDir()
	first := start(t, dir)
	second := exec.CommandContext(t.Context(), binary(t), "up", "--dir", dir)
	output, err := second.CombinedOutput()
	if code := second.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit code %d (%v), want 1", code, err)
	}
	want := fmt.Sprintf("--dir %s is in use by the control plane of process %d", dir, first.cmd.Process.Pid)
	if !strings.Contains(string(output), want) {
		t.Errorf("output %q does not contain %q", output, want)
	}
	if _, err := client(t, first.config(t)).Discovery().ServerVersion(); err != nil {
		t.Errorf("the first one suffered: %v", err)
	}
}

func TestKubeconfigOfSomethingElseIsKept(t *testing.T) {
	for name, content := range map[string]string{
		"of another cluster": "apiVersion: v1\nkind: Config\ncurrent-context: production\n",
		"no kubeconfig":      "notes",
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config")
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			command := exec.CommandContext(t.Context(), binary(t), "up", "--dir", t.TempDir(), "--kubeconfig", file)
			output, err := command.CombinedOutput()
			if err == nil || !strings.Contains(string(output), "name another file with --kubeconfig") {
				t.Errorf("it says %q (%v)", output, err)
			}
			if got, err := os.ReadFile(file); err != nil || string(got) != content {
				t.Errorf("the file holds %q (%v), want %q", got, err, content)
			}
		})
	}
}

func TestBadCommandLineSaysWhatIsWrong(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no directory":      {nil, "--dir is required"},
		"an argument":       {[]string{"--dir", "d", "extra"}, `unexpected argument "extra"`},
		"an unknown flag":   {[]string{"--directory", "d"}, "not defined: -directory"},
		"no KWOK":           {[]string{"--dir", "d", "--with-nodes", "--kwok", "/nowhere/kwok"}, "/nowhere/kwok"},
		"a file, no folder": {[]string{"--dir", "/dev/null"}, "/dev/null"},
	} {
		t.Run(name, func(t *testing.T) {
			command := exec.CommandContext(t.Context(), binary(t), append([]string{"up"}, test.args...)...)
			command.Dir = t.TempDir()
			output, err := command.CombinedOutput()
			if err == nil {
				t.Error("it succeeds")
			}
			if !strings.Contains(string(output), test.want) {
				t.Errorf("output %q does not contain %q", output, test.want)
			}
		})
	}
}
