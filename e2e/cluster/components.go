package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// KillComponent kills a component of the control plane (etcd, kube-apiserver), which is then started again: see
// WithRestarts. It returns when the process is gone; AwaitAPI waits until the API answers again.
func (c *Cluster) KillComponent(t testing.TB, name string) {
	t.Helper()
	if c.parent == 0 {
		t.Fatal("only components of bin/controlplane can be killed: unset KUBECONFIG and KUBEBUILDER_ASSETS")
	}
	pid := c.component(t, name)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("killing %s: %v", name, err)
	}
	Eventually(t, func(context.Context) error {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("process %d of %s is still there (%w)", pid, name, err)
		}
		return nil
	})
}

// AwaitAPI waits until the API server answers with what is stored.
func (c *Cluster) AwaitAPI(t testing.TB) {
	t.Helper()
	Eventually(t, func(ctx context.Context) error {
		return c.client.Get(ctx, client.ObjectKey{Name: corev1.NamespaceDefault}, &corev1.Namespace{})
	})
}

// component is the process of a component: the child of "up" whose first argument is its name.
func (c *Cluster) component(t testing.TB, name string) int {
	t.Helper()
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		stat, err := os.ReadFile(filepath.Join(folder, "stat"))
		if err != nil {
			continue // it ended between the two looks
		}
		// See proc(5): after the name in parentheses come the state and the parent.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		command, err := os.ReadFile(filepath.Join(folder, "cmdline"))
		if err != nil || fields[1] != strconv.Itoa(c.parent) || !bytes.HasPrefix(command, []byte(name+"\x00")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil {
			t.Fatal(err)
		}
		return pid
	}
	t.Fatalf("no %s runs", name)
	return 0
}
