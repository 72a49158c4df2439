// Package admission_test runs the built stageset-admission as a user would: as processes, with a token of exactly the roles
// that the chart installs, called by a real API server over TLS. It imports the API and clients, and nothing of the program.
package admission_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/api/crds"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	directory, err := os.MkdirTemp("", "stageset-admission-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(directory)
	binary = filepath.Join(directory, "stageset-admission")
	log.SetLogger(logr.Discard()) // the clients of the tests have nothing to say
	return cluster.Run(m)
}

// binary is the program, built from the present source by the first test that needs it.
var (
	binary string
	build  = sync.OnceValue(func() error {
		output, err := exec.Command("go", "build", "-o", binary, "github.com/stageset/stageset/admission").CombinedOutput()
		if err != nil {
			return fmt.Errorf("building stageset-admission: %w\n%s", err, output)
		}
		return nil
	})
)

const files = "../../charts/stageset/files/"

// installation is a release of stageset-admission in a namespace of its own, with the roles that the chart installs and
// nothing else. Its webhooks see only the StageSets of one tenant's namespace, so that tests do not meet.
type installation struct {
	*cluster.Cluster
	// name of the release and of its namespace, and the namespace of its tenant.
	name, tenant string
	// port is where the webhook configurations point to.
	port       int
	kubeconfig string
	client     client.Client
	// env is added to the environment of the processes.
	env []string
}

// install prepares everything but the webhook configurations and the processes.
func install(t testing.TB) *installation {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	c := cluster.Shared(t)
	c.InstallCRDs(t, crds.FS)
	i := &installation{Cluster: c, name: c.Namespace(t, "release"), tenant: c.Namespace(t, "tenant"), port: process.FreePort(t)}
	i.client = c.Client(t)
	i.grant(t, i.manifest(t, "admission-rbac.yaml"))
	c.Apply(t, i.expand(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: stageset-admission, namespace: stageset-system}
---
apiVersion: v1
kind: Secret
metadata: {name: stageset-admission-tls, namespace: stageset-system}`))
	i.kubeconfig = i.WriteKubeconfig(t, i.TokenConfig(t, i.name, i.name+"-admission"))
	return i
}

// grant applies roles and binds them to the account of the program.
func (i *installation) grant(t testing.TB, roles string) {
	t.Helper()
	i.Apply(t, roles)
	i.Apply(t, i.expand(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: stageset-admission}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: stageset-admission}
subjects: [{kind: ServiceAccount, name: stageset-admission, namespace: stageset-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: stageset-admission-watched}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: stageset-admission-watched}
subjects: [{kind: ServiceAccount, name: stageset-admission, namespace: stageset-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: stageset-admission, namespace: stageset-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: stageset-admission}
subjects: [{kind: ServiceAccount, name: stageset-admission, namespace: stageset-system}]`))
	t.Cleanup(func() {
		for _, kind := range []string{"ClusterRoleBinding", "ClusterRole"} {
			i.remove(t, "rbac.authorization.k8s.io/v1", kind, "-admission")
			i.remove(t, "rbac.authorization.k8s.io/v1", kind, "-admission-watched")
		}
	})
}

// remove deletes a cluster-scoped object of this release, whose name ends so, after the test.
func (i *installation) remove(t testing.TB, apiVersion, kind, suffix string) {
	t.Helper()
	object := cluster.Ref(apiVersion, kind, "", i.name+suffix)
	if err := client.IgnoreNotFound(i.client.Delete(context.Background(), object)); err != nil {
		t.Errorf("deleting %s %s: %v", kind, object.GetName(), err)
	}
}

// manifest is a file of the chart, with the names of this release.
func (i *installation) manifest(t testing.TB, file string) string {
	t.Helper()
	content, err := os.ReadFile(files + file)
	if err != nil {
		t.Fatal(err)
	}
	return i.expand(string(content))
}

// expand puts the names of this release where the chart's files have those of a release called stageset.
func (i *installation) expand(manifest string) string {
	return strings.NewReplacer("stageset-system", i.name, "stageset-admission", i.name+"-admission").Replace(manifest)
}

var service = regexp.MustCompile(`(?m)service: \{.* path: (\S+)\}$`)

// installWebhooks applies both webhook configurations, for the tenant's namespace alone and with a URL for a Service.
func (i *installation) installWebhooks(t testing.TB, operations ...string) {
	t.Helper()
	url := fmt.Sprintf("url: https://localhost:%d$1", i.port)
	manifests := service.ReplaceAllString(i.manifest(t, "admission-webhooks.yaml"), url)
	for _, manifest := range strings.Split(manifests, "\n---\n") {
		configuration := map[string]any{}
		if err := yaml.Unmarshal([]byte(manifest), &configuration); err != nil {
			t.Fatal(err)
		}
		for _, item := range configuration["webhooks"].([]any) {
			webhook := item.(map[string]any)
			webhook["namespaceSelector"] = metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: i.tenant}}
			if len(operations) > 0 {
				webhook["rules"].([]any)[0].(map[string]any)["operations"] = operations
			}
		}
		content, err := yaml.Marshal(configuration)
		if err != nil {
			t.Fatal(err)
		}
		i.Apply(t, string(content))
	}
	t.Cleanup(func() { i.removeWebhooks(t) })
}

// failClosed has a request fail when the mutating webhook cannot be called, too, so that no failed call goes unnoticed. One
// that is only slow does not fail: others may be using the machine.
func (i *installation) failClosed(t testing.TB) {
	t.Helper()
	for kind, patch := range map[string]string{
		mutating: `[{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"},
			{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 30}]`,
		validating: `[{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 30}]`,
	} {
		err := i.client.Patch(t.Context(), i.configuration(kind), client.RawPatch(types.JSONPatchType, []byte(patch)))
		if err != nil {
			t.Fatal(err)
		}
	}
}

// configuration names a webhook configuration of this release.
func (i *installation) configuration(kind string) *unstructured.Unstructured {
	return cluster.Ref("admissionregistration.k8s.io/v1", kind, "", i.name+"-admission")
}

// secret names the Secret of the certificate.
func (i *installation) secret() *unstructured.Unstructured {
	return cluster.Ref("v1", "Secret", i.name, i.name+"-admission-tls")
}

func (i *installation) removeWebhooks(t testing.TB) {
	t.Helper()
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		i.remove(t, "admissionregistration.k8s.io/v1", kind, "-admission")
	}
}

// replica is one process of the program.
type replica struct {
	*process.Process
	port, health, metrics int
}

// start runs a replica that serves at the port of the webhook configurations and waits until it is ready.
func (i *installation) start(t testing.TB, arguments ...string) *replica {
	t.Helper()
	return i.startAt(t, i.port, "/readyz", arguments...)
}

// drainDelay is long enough for the balancer to notice.
const drainDelay = "--drain-delay=3s"

// behindBalancer runs replicas at ports of their own, with a balancer at the port of the webhook configurations.
func (i *installation) behindBalancer(t *testing.T, n int, arguments ...string) ([]*replica, *balancer) {
	t.Helper()
	var replicas []*replica
	for range n {
		replicas = append(replicas, i.startAt(t, process.FreePort(t), "/readyz", append(arguments, drainDelay)...))
	}
	return replicas, balance(t, i.port, replicas...)
}

// startAt runs a replica and waits until its probe answers 200.
func (i *installation) startAt(t testing.TB, port int, probe string, arguments ...string) *replica {
	t.Helper()
	r := &replica{port: port, health: process.FreePort(t), metrics: process.FreePort(t)}
	r.Process = process.Start(t, process.Options{
		Path:     binary,
		Args:     append(i.arguments(r), arguments...),
		Env:      i.env,
		ReadyURL: r.healthURL(probe),
	})
	return r
}

// answered is how many requests a replica has allowed, as its log has it, also when it is gone.
func (r *replica) answered() int { return strings.Count(r.Output(), "msg=allowed") }

func (i *installation) arguments(r *replica) []string {
	return []string{
		"--name=" + i.name, "--namespace=" + i.name, "--kubeconfig=" + i.kubeconfig,
		"--webhook-host=127.0.0.1", "--webhook-port=" + strconv.Itoa(r.port), "--cert-dns-names=localhost",
		"--health-probe-bind-address=127.0.0.1:" + strconv.Itoa(r.health),
		"--metrics-bind-address=127.0.0.1:" + strconv.Itoa(r.metrics),
		"--drain-delay=1s", "--log-level=debug", "--log-format=text",
	}
}

func (r *replica) healthURL(path string) string {
	return fmt.Sprintf("http://127.0.0.1:%d%s", r.health, path)
}

// ready asks the readiness probe, which a Pod's kubelet would ask.
func (r *replica) ready(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.healthURL("/readyz"), nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// stageSet is a StageSet in the tenant's namespace, made from YAML of its spec.
func (i *installation) stageSet(t testing.TB, name, spec string) *unstructured.Unstructured {
	t.Helper()
	object := cluster.Ref("stages.metio.wtf/v1", "StageSet", i.tenant, name)
	var content map[string]any
	if err := yaml.Unmarshal([]byte(spec), &content); err != nil {
		t.Fatal(err)
	}
	object.Object["spec"] = content
	return object
}
