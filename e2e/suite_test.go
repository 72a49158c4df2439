// Package e2e tests the built binaries as a user runs them: as processes, with tokens of exactly the accounts that the
// generated RBAC binds, against a real API server. It imports the API and clients, and nothing of the product's inside.
package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/stageset/stageset/api/crds"
	"github.com/stageset/stageset/e2e/artifacts"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

func TestMain(m *testing.M) { os.Exit(cluster.Run(m, cluster.WithNodes())) }

// system is the namespace that the product is installed in.
const system = "stageset-system"

// install makes what the chart will: CRDs, namespace, accounts and the generated RBAC.
func install(t testing.TB, c *cluster.Cluster) {
	t.Helper()
	c.InstallCRDs(t, crds.FS)
	crdDir, err := cluster.Binary("source-controller-crds")
	if err != nil {
		t.Fatal(err)
	}
	c.InstallCRDs(t, os.DirFS(crdDir))
	c.Apply(t, `
apiVersion: v1
kind: Namespace
metadata: {name: `+system+`}
`)
	for _, program := range []string{"stageset-reconciler", "stageset-admission"} {
		c.Apply(t, account(program))
	}
	for _, file := range []string{"reconciler-rbac.yaml", "admission-rbac.yaml"} {
		manifest, err := os.ReadFile(filepath.Join("..", "charts", "stageset", "files", file))
		if err != nil {
			t.Fatal(err)
		}
		c.Apply(t, string(manifest))
	}
}

func account(program string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: %[1]s, namespace: %[2]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}
subjects: [{kind: ServiceAccount, name: %[1]s, namespace: %[2]s}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: %[1]s, namespace: %[2]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: %[1]s}
subjects: [{kind: ServiceAccount, name: %[1]s, namespace: %[2]s}]
`, program, system)
}

// kubeconfig writes a file with the token of one of the product's accounts.
func kubeconfig(t testing.TB, config *rest.Config) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {
			Server: config.Host, CertificateAuthorityData: config.CAData, CertificateAuthority: config.CAFile,
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: config.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, file)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// startReconciler runs stageset-reconciler as its own account until the end of the test.
func startReconciler(t testing.TB, c *cluster.Cluster, artifactHosts string, args ...string) *process.Process {
	t.Helper()
	binary, err := cluster.Binary("stageset-reconciler")
	if err != nil {
		t.Fatal(err)
	}
	health := fmt.Sprintf("127.0.0.1:%d", process.FreePort(t))
	return process.Start(t, process.Options{
		Path: binary,
		Args: append([]string{
			"--kubeconfig", kubeconfig(t, c.TokenConfig(t, system, "stageset-reconciler")),
			"--namespace", system, "--leader-elect=false", "--log-format=text",
			"--metrics-bind-address=0", "--health-probe-bind-address=" + health,
			"--artifact-cache-dir", t.TempDir(),
			"--artifact-hosts", artifactHosts, "--dial-allow=127.0.0.0/8",
		}, args...),
		ReadyURL: "http://" + health + "/readyz",
	})
}

// publish makes the GitRepository have the artifact, as source-controller would.
func publish(t testing.TB, c *cluster.Cluster, namespace, name string, artifact artifacts.Artifact) {
	t.Helper()
	client := c.Client(t, sourcev1.AddToScheme)
	repository := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	_, err := controllerutil.CreateOrPatch(t.Context(), client, repository, func() error {
		repository.Spec.URL = "https://git.example/" + name
		repository.Spec.Interval = metav1.Duration{Duration: time.Hour}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	repository.Status.ObservedGeneration = repository.Generation
	repository.Status.Artifact = &fluxmeta.Artifact{
		URL: artifact.URL, Path: artifact.Path, Digest: artifact.Digest, Revision: artifact.Revision,
		Size: ptr.To(int64(artifact.Size)), LastUpdateTime: metav1.Now(),
	}
	if err := client.Status().Update(t.Context(), repository); err != nil {
		t.Fatal(err)
	}
}
