package cluster

import (
	"fmt"
	"os"
	"testing"

	"github.com/stageset/stageset/e2e/process"
)

// SourceController is Flux's source-controller as a process.
type SourceController struct {
	*process.Process
	// Namespace it believes to run in. Its service account has the same name.
	Namespace string
	// Address serves the artifacts: 127.0.0.1 and a port.
	Address string
}

// StartSourceController installs the CRDs of source-controller and runs it, with an account and a storage of its own,
// until the end of the test. Its artifacts are at 127.0.0.1. It reconciles the sources of all namespaces, so a cluster
// has only one at a time.
func (c *Cluster) StartSourceController(t testing.TB) *SourceController {
	t.Helper()
	binary := mustBinary(t, "source-controller")
	c.InstallCRDs(t, os.DirFS(mustBinary(t, "source-controller-crds")))
	namespace := c.Namespace(t, "source-controller")
	// The role of source-controller in a usual installation of Flux.
	c.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: %[1]s, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: %[1]s, namespace: %[1]s}]`, namespace))
	c.deleteAfter(t, Ref("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", namespace))
	artifacts := loopback(t)
	health := loopback(t)
	return &SourceController{
		Namespace: namespace,
		Address:   artifacts,
		Process: process.Start(t, process.Options{
			Path: binary,
			Args: []string{
				"--watch-all-namespaces",
				"--enable-leader-election=false",
				"--storage-path=" + t.TempDir(),
				"--storage-addr=" + artifacts,
				"--storage-adv-addr=" + artifacts,
				"--metrics-addr=0",
				"--health-addr=" + health,
				"--events-addr=",
			},
			Env: []string{
				"KUBECONFIG=" + c.WriteKubeconfig(t, c.TokenConfig(t, namespace, namespace)),
				"RUNTIME_NAMESPACE=" + namespace,
			},
			ReadyURL: "http://" + health + "/readyz",
		}),
	}
}

func mustBinary(t testing.TB, name string) string {
	t.Helper()
	path, err := Binary(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func loopback(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", process.FreePort(t))
}
