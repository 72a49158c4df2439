// Package e2e tests the built binaries as a user runs them: as processes, with tokens of exactly the accounts that the
// generated RBAC binds, against a real API server. It imports the API and clients, and nothing of the product's inside.
//
// Tests share one installation and, unless they need their own, one reconciler, one source-controller, one Git server. A
// test that begins with shared runs beside others, in namespaces of its own. A test that runs a reconciler of its own
// begins with setup; it is not parallel, and so runs before all those that are.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/go-logr/logr"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/stageset/stageset/api/crds"
	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/artifacts"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/gitserver"
	"github.com/stageset/stageset/e2e/process"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // what clients would log is in the tests' own failures
	os.Exit(cluster.Run(m, cluster.WithNodes(), cluster.WithRestarts(), cluster.AtEnd(endScopes)))
}

const (
	// system is the namespace that the product is installed in.
	system = "stageset-system"
	// platform is a namespace that the policy config does not count as a tenant's.
	platform = "platform"
	// prebuiltVariable names the environment variable that keeps the suite from building the product first.
	prebuiltVariable = "E2E_PREBUILT"
)

// defaultPolicyConfig is the policy config of the shared reconciler.
const defaultPolicyConfig = "platformNamespaces: [" + system + ", " + platform + "]\n"

// suite is the package's cluster with the product installed, and what tests share.
type suite struct {
	*cluster.Cluster
	// Client is the administrator's, and knows the kinds of the product and of Flux.
	Client client.Client
	// Artifacts serves what no real source makes.
	Artifacts *artifacts.Server
	// began is the place in the audit log before anything of the product ran.
	began cluster.AuditMark

	mu sync.Mutex
	// itself are the namespaces of installations that may have applied something as themselves.
	itself     map[string]bool
	reconciler *process.Process
	sources    *cluster.SourceController
	git        *gitserver.Server
}

var installed struct {
	once  sync.Once
	suite *suite
}

// setup is the suite, without a reconciler that runs. Only a test that is not parallel may start its own.
func setup(t testing.TB) *suite {
	t.Helper()
	installed.once.Do(func() {
		c := cluster.Shared(t)
		build(t)
		install(t, c)
		installed.suite = &suite{
			Cluster:   c,
			Client:    c.Client(t, v1.AddToScheme, sourcev1.AddToScheme),
			Artifacts: artifacts.Start(scope{t}),
			began:     c.Audit(t),
			itself:    map[string]bool{},
		}
		scope{t}.Cleanup(func() {
			checkOwnRequests(scope{t}, installed.suite)
			checkGrantsAreUsed(scope{t}, installed.suite)
		})
	})
	if installed.suite == nil {
		t.Fatal("the installation failed in an earlier test")
	}
	return installed.suite
}

// shared is the suite with the reconciler that tests share. The test waits for those that are not parallel.
func shared(t *testing.T) *suite {
	t.Helper()
	t.Parallel()
	s := setup(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reconciler == nil {
		s.reconciler = startReconciler(scope{t}, s.Cluster, "127.0.0.1", policyConfig(scope{t}, defaultPolicyConfig))
	}
	return s
}

// install makes what the chart will: CRDs, namespaces, accounts and the generated RBAC. Doing it again is harmless.
func install(t testing.TB, c *cluster.Cluster) {
	t.Helper()
	c.InstallCRDs(t, crds.FS)
	c.InstallCRDs(t, os.DirFS(binary(t, "source-controller-crds")))
	for _, name := range []string{system, platform} {
		c.Apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+"}}")
	}
	for _, program := range []string{programReconciler, programAdmission} {
		installation{namespace: system}.account(t, c, program)
	}
	for _, role := range []string{"view", "edit"} {
		c.Apply(t, chartFile(t, "aggregate-"+role+".yaml"))
	}
	// A controller of the cluster adds up the roles.
	c.WaitFor(t, cluster.Ref("rbac.authorization.k8s.io/v1", "ClusterRole", "", "edit"), grantsReadingSources)
}

// build brings the binaries that tests run up to date; the Go command knows what has changed.
func build(t testing.TB) {
	t.Helper()
	if os.Getenv(prebuiltVariable) != "" {
		return
	}
	command := exec.Command("make", "--no-print-directory", "bin/stageset-admission", "bin/stageset-reconciler",
		"bin/stagesetctl")
	command.Dir = ".."
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("make: %v\n%s", err, output)
	}
}

// binary is the path of bin/<name>.
func binary(t testing.TB, name string) string {
	t.Helper()
	path, err := cluster.Binary(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// chartFile is a file that the chart installs.
func chartFile(t testing.TB, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "charts", "stageset", "files", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func grantsReadingSources(object *unstructured.Unstructured) error {
	var role rbacv1.ClusterRole
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role); err != nil {
		return err
	}
	for _, rule := range role.Rules {
		if len(rule.APIGroups) > 0 && rule.APIGroups[0] == sourcev1.GroupVersion.Group {
			return nil
		}
	}
	return errors.New("the role does not have the rules for sources yet")
}

// ownReconciler stops the shared reconciler and runs another, with more arguments, until the end of the test: two at once
// would work against each other. The test must not be parallel.
func (s *suite) ownReconciler(t testing.TB, args ...string) *process.Process {
	t.Helper()
	s.stopReconciler(t)
	return startReconciler(t, s.Cluster, "127.0.0.1", args...)
}

// stopReconciler stops the shared reconciler; the next call of shared starts it again.
func (s *suite) stopReconciler(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reconciler == nil {
		return
	}
	if err := s.reconciler.Stop(); err != nil {
		t.Error(err)
	}
	s.reconciler = nil
}

// startReconciler runs stageset-reconciler as its own account until the end of the test.
func startReconciler(t testing.TB, c *cluster.Cluster, artifactHosts string, args ...string) *process.Process {
	t.Helper()
	return process.Start(t, reconcilerOptions(t, c, artifactHosts, args...))
}

// reconcilerOptions are how stageset-reconciler is run: as its own account, with everything on loopback.
func reconcilerOptions(t testing.TB, c *cluster.Cluster, artifactHosts string, args ...string) process.Options {
	t.Helper()
	health := fmt.Sprintf("127.0.0.1:%d", process.FreePort(t))
	return process.Options{
		Path: binary(t, "stageset-reconciler"),
		Args: append([]string{
			"--kubeconfig", c.WriteKubeconfig(t, c.TokenConfig(t, system, "stageset-reconciler")),
			"--namespace", system, "--leader-elect=false", "--log-format=text",
			"--metrics-bind-address=0", "--health-probe-bind-address=" + health,
			"--artifact-cache-dir", t.TempDir(),
			"--artifact-hosts", artifactHosts, "--dial-allow=127.0.0.0/8",
		}, args...),
		ReadyURL: "http://" + health + "/readyz",
	}
}

// policyConfig is the argument of both programs for a policy config with that content.
func policyConfig(t testing.TB, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy-config.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return "--policy-config=" + path
}

// deleteAfter deletes an object, usually one in no namespace, at the end of the test.
func (s *suite) deleteAfter(t testing.TB, object client.Object) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cluster.Timeout) // the test's own has ended
		defer cancel()
		if err := client.IgnoreNotFound(s.Client.Delete(ctx, object)); err != nil {
			t.Error(err)
		}
	})
}

// sourceController starts the source-controller that tests share.
func (s *suite) sourceController(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sources == nil {
		s.sources = s.StartSourceController(scope{t})
	}
}

// killSourceController ends the source-controller that tests share; the next one has nothing of what it had stored. The test
// must not be parallel.
func (s *suite) killSourceController() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sources.Kill()
	s.sources = nil
}

// gitServer is the Git server that tests share.
func (s *suite) gitServer(t testing.TB) *gitserver.Server {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.git == nil {
		server, err := gitserver.Serve(scope{t}.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		scope{t}.Cleanup(func() { _ = server.Close() })
		s.git = server
	}
	return s.git
}

// kubectl runs kubectl as the administrator, with the input on its standard input, and returns what it prints.
func (s *suite) kubectl(t testing.TB, input string, args ...string) (string, error) {
	t.Helper()
	args = append([]string{"kubectl", "--kubeconfig", s.Kubeconfig}, args...)
	command := exec.CommandContext(t.Context(), binary(t, "controlplane"), args...)
	command.Stdin = strings.NewReader(input)
	output, err := command.CombinedOutput()
	return string(output), err
}
