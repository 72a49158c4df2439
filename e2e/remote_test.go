package e2e

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// hub is the account on the other cluster whose token kubeconfigs have: it may impersonate ServiceAccounts, and nothing
// else.
const (
	hub     = "hub"
	hubUser = "system:serviceaccount:default:" + hub
)

var other struct {
	once sync.Once
	*cluster.Cluster
}

// otherCluster is the second cluster, which the tests of remote targets share.
func otherCluster(t testing.TB) *cluster.Cluster {
	t.Helper()
	other.once.Do(func() {
		other.Cluster = cluster.Another(scope{t}, cluster.Trusting(scope{t}, cluster.Shared(t), documentedTrust(t)))
		other.Apply(t, `
apiVersion: v1
kind: ServiceAccount
metadata: {name: `+hub+`, namespace: default}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: powerless, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: impersonate-accounts}
rules: [{apiGroups: [""], resources: [serviceaccounts], verbs: [impersonate]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: hub}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: impersonate-accounts}
subjects: [{kind: ServiceAccount, name: `+hub+`, namespace: default}]`)
	})
	if other.Cluster == nil {
		t.Fatal("the other cluster failed to start in an earlier test")
	}
	return other.Cluster
}

// remote is a tenant whose StageSets go to the other cluster, where a namespace of the same name exists.
type remote struct {
	*tenant
	there *cluster.Cluster
}

// remote is a tenant with what leads to the other cluster.
func (s *suite) remote(t testing.TB) *remote {
	t.Helper()
	return s.tenant(t).remote(t)
}

// remote gives a tenant the Secret "remote", which leads to the other cluster, where the group of all accounts of the
// tenant's namespace is bound to the role edit. No ServiceAccount exists there.
func (n *tenant) remote(t testing.TB) *remote {
	t.Helper()
	r := &remote{tenant: n, there: otherCluster(t)}
	r.there.Apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+n.namespace+"}}")
	r.granted(t, "edit")
	r.kubeconfig(t, "remote", kubeconfigOf(t, r.there.TokenConfig(t, "default", hub)))
	return r
}

// kubeconfigFile is a kubeconfig with a single user.
type kubeconfigFile struct {
	cluster, user map[string]any
}

// kubeconfigOf leads to where the configuration does, with its token.
func kubeconfigOf(t testing.TB, config *rest.Config) kubeconfigFile {
	t.Helper()
	ca := config.CAData
	if len(ca) == 0 {
		var err error
		if ca, err = os.ReadFile(config.CAFile); err != nil {
			t.Fatal(err)
		}
	}
	return kubeconfigFile{
		cluster: map[string]any{"server": config.Host, "certificate-authority-data": ca},
		user:    map[string]any{"token": config.BearerToken},
	}
}

// kubeconfig makes, or changes, a Secret with a kubeconfig.
func (n *tenant) kubeconfig(t testing.TB, name string, file kubeconfigFile) {
	t.Helper()
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "main",
		"clusters": []any{map[string]any{"name": "there", "cluster": file.cluster}},
		"users":    []any{map[string]any{"name": "hub", "user": file.user}},
		"contexts": []any{map[string]any{"name": "main", "context": map[string]any{"cluster": "there", "user": "hub"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	secret, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name, "namespace": n.namespace},
		"data": map[string]any{"value": text},
	})
	if err != nil {
		t.Fatal(err)
	}
	n.Apply(t, string(secret))
}

// granted binds the tenant's accounts to a role in their namespace on the other cluster, or takes that away.
func (n *remote) granted(t testing.TB, role string) {
	t.Helper()
	binding := cluster.Ref("rbac.authorization.k8s.io/v1", "RoleBinding", n.namespace, "tenant")
	if err := client.IgnoreNotFound(n.there.Client(t).Delete(t.Context(), binding)); err != nil {
		t.Fatal(err)
	}
	n.there.WaitGone(t, binding)
	if role == "" {
		return
	}
	n.there.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[2]s}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:serviceaccounts:%[1]s"}]`, n.namespace, role))
}

// toOther is the spec of a StageSet that applies the source to where the Secret leads.
func toOther(source, secret string) string {
	return fmt.Sprintf("kubeConfig: {secretRef: {name: %s}}\nretryInterval: 2s\n", secret) + oneStage(source)
}

// T-15, T-16: what is read is here, what is applied is there, as a user whose groups follow from its name.
func TestRemoteTarget(t *testing.T) {
	n := shared(t).remote(t)
	n.Apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: values, namespace: "+n.namespace+"}, data: {color: blue}}")
	revision := n.source(t, "app", map[string]string{"a.yaml": configMap("a", "${color}")})
	here, there := n.Audit(t), n.there.Audit(t)
	n.stageSet(t, "app", strings.Replace(toOther("app", "remote"), "sourceRef:",
		"postBuild: {substituteFrom: [{kind: ConfigMap, name: values}]}, sourceRef:", 1))
	n.waitReady(t, "app", "app", revision)

	live := n.there.WaitFor(t, n.configMap("a"))
	if got, _, _ := unstructured.NestedString(live.Object, "data", "value"); got != "blue" {
		t.Errorf("the object has %q, want what is read here", got)
	}
	n.absent(t, n.configMap("a"))
	if written := n.written(t, here, deployer); len(written) > 0 {
		t.Errorf("the account wrote here: %v", written)
	}
	byHub := func(e cluster.AuditEvent) bool { return e.User == hubUser && e.Namespace == n.namespace }
	allAs(t, "system:serviceaccount:"+n.namespace+":"+deployer, there.Since(t, byHub))

	// What is deleted there later is what the inventory says.
	n.delete(t, "app")
	n.gone(t, "app")
	n.there.WaitGone(t, n.configMap("a"))
}

// T-20, T-22, T-27: what is wrong with a kubeconfig has a reason of its own, and a message that names field, key or
// permission. Whatever it is, it is mended by a new Secret alone.
func TestKubeconfigsThatDoNotLeadThere(t *testing.T) {
	n := shared(t).remote(t)
	revision := n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	touched := filepath.Join(t.TempDir(), "touched")
	good := kubeconfigOf(t, n.there.TokenConfig(t, "default", hub))
	with := func(cluster, user map[string]any) kubeconfigFile {
		merged := kubeconfigFile{cluster: maps.Clone(good.cluster), user: maps.Clone(good.user)}
		maps.Copy(merged.cluster, cluster)
		maps.Copy(merged.user, user)
		return merged
	}
	const invalid, unreachable = v1.ReasonKubeConfigInvalid, v1.ReasonTargetUnreachable
	for name, tc := range map[string]struct {
		file         kubeconfigFile
		reason, says string
	}{
		"program": {with(nil, map[string]any{"exec": map[string]any{
			"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/touch", "args": []any{touched},
		}}), invalid, "users[0].user.exec would run a program"},
		"token-file": {with(nil, map[string]any{"tokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token"}), invalid,
			"users[0].user.tokenFile names a file"},
		"insecure": {with(map[string]any{"insecure-skip-tls-verify": true}, nil), invalid,
			"clusters[0].cluster.insecure-skip-tls-verify would take any server"},
		"somebody-else": {with(nil, map[string]any{"as": "system:admin"}), invalid, "users[0].user.as would impersonate somebody"},
		"metadata": {with(map[string]any{"server": "https://169.254.169.254"}, nil), invalid,
			"its server: address 169.254.169.254 is a link-local address"},
		"other-ca": {with(map[string]any{"certificate-authority-data": caOf(t, n.Config)}, nil), unreachable,
			good.cluster["server"].(string) + ": the certificate of the API server is not trusted"},
		"token": {with(nil, map[string]any{"token": "nobody-knows-it"}), unreachable,
			good.cluster["server"].(string) + " does not accept the credentials that kubeConfig leads to"},
		"may-not-impersonate": {kubeconfigOf(t, n.there.TokenConfig(t, "default", "powerless")), v1.ReasonAccessDenied,
			"the user that kubeConfig leads to may not impersonate ServiceAccount " + n.namespace + "/" + deployer},
	} {
		n.kubeconfig(t, name, tc.file)
		n.stageSet(t, name, toOther("app", name))
		n.wait(t, name, cluster.Condition(v1.ConditionReady, "False", tc.reason), messageHas(tc.says))
		if message := n.waitRefused(t, name, tc.reason); strings.Contains(message, good.user["token"].(string)) {
			t.Errorf("%s: the message quotes the token: %s", name, message)
		}
	}
	if _, err := os.Stat(touched); err == nil {
		t.Error("the program of a kubeconfig was run")
	}
	for _, name := range []string{"program", "other-ca", "may-not-impersonate"} {
		n.kubeconfig(t, name, good)
		n.stageSet(t, name, strings.Replace(toOther("app", name), "stages:", "deletionPolicy: Orphan\nstages:", 1))
		n.waitReady(t, name, "app", revision)
		n.delete(t, name)
		n.gone(t, name)
	}
}

// caOf is what a cluster is verified by.
func caOf(t testing.TB, config *rest.Config) any {
	t.Helper()
	return kubeconfigOf(t, config).cluster["certificate-authority-data"]
}

// What leads to the kubeconfig is named too: the Secret, its keys and never its values, and who may not read it.
func TestSecretsThatHoldNoKubeconfig(t *testing.T) {
	n := shared(t).remote(t)
	n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	n.stageSet(t, "app", toOther("app", "missing"))
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonKubeConfigInvalid),
		messageHas("Secret "+n.namespace+"/missing: there is none: create it"))
	n.Apply(t, "{apiVersion: v1, kind: Secret, metadata: {name: missing, namespace: "+n.namespace+"}, "+
		"stringData: {b: hunter2, a: x}}")
	message := n.wait(t, "app", messageHas("there is no key value or value.yaml: it has a, b"))
	if strings.Contains(readyMessage(message), "hunter2") {
		t.Errorf("a value is in the message: %s", readyMessage(message))
	}

	n.account(t, "reader")
	n.Apply(t, readerRole(n.namespace, "app"))
	n.grant(t, n.namespace, "reader", "Role", "read-app")
	n.stageSet(t, "denied", strings.Replace(toOther("app", "remote"), deployer, "reader", 1))
	n.wait(t, "denied", cluster.Condition(v1.ConditionReady, "False", v1.ReasonAccessDenied),
		messageHas("ServiceAccount "+n.namespace+"/reader may not get Secret "+n.namespace+"/remote: "+
			"grant it get on secrets named remote in namespace "+n.namespace))
}

// What the account may not do there is said before anything is written, and is found again once it may.
func TestRightsOnTheOtherCluster(t *testing.T) {
	n := shared(t).remote(t)
	revision := n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	n.granted(t, "")
	n.stageSet(t, "app", toOther("app", "remote"))
	n.waitRefused(t, "app", v1.ReasonPermissionsMissing)
	n.granted(t, "edit")
	n.waitReady(t, "app", "app", revision)
	n.there.WaitFor(t, n.configMap("a"))
}

// What was applied to the old cluster is deleted there, by the reference that is recorded, when the release is on the new
// one.
func TestTargetSwitched(t *testing.T) {
	n := shared(t).remote(t)
	revision := n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	n.stageSet(t, "app", toOther("app", "remote"))
	n.waitReady(t, "app", "app", revision)
	n.there.WaitFor(t, n.configMap("a"))
	n.stageSet(t, "app", oneStage("app"))
	n.WaitFor(t, n.configMap("a"))
	uid := n.uid(t, n.configMap("a"))
	n.there.WaitGone(t, n.configMap("a"))
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "True", v1.ReasonSucceeded), n.recordsOnly("app", v1.ClusterLocal))
	n.unchanged(t, n.configMap("a"), uid)
}

// recordsOnly holds when the inventories of a StageSet are all of the cluster.
func (n *tenant) recordsOnly(stageSet, name string) cluster.Predicate {
	return func(*unstructured.Unstructured) error {
		var list v1.StageInventoryList
		if err := n.Client.List(context.Background(), &list, client.InNamespace(n.namespace)); err != nil {
			return err
		}
		for _, record := range list.Items {
			if record.Spec.StageSet == stageSet && record.Spec.Target.Cluster != name {
				return fmt.Errorf("%s is of cluster %s", record.Name, record.Spec.Target.Cluster)
			}
		}
		return nil
	}
}

// If the reference leads nowhere any more, nobody can delete what is there: it is listed, and nothing waits for it.
func TestKubeconfigThatIsGone(t *testing.T) {
	n := shared(t).remote(t)
	revision := n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1"), "b.yaml": configMap("b", "1")})
	for _, name := range []string{"switched", "deleted"} {
		n.kubeconfig(t, name, kubeconfigOf(t, n.there.TokenConfig(t, "default", hub)))
	}
	n.stageSet(t, "switched", toOther("app", "switched"))
	n.waitReady(t, "switched", "app", revision)
	n.removeSecret(t, "switched")
	n.stageSet(t, "switched", oneStage("app"))
	const why = "the kubeConfig that they were applied with does not lead to their cluster any more: "
	n.waitEvent(t, "switched", "Warning", v1.EventOrphaned, why+"ConfigMap "+n.namespace+"/a, ConfigMap "+n.namespace+"/b")
	n.waitReady(t, "switched", "app", revision)
	n.delete(t, "switched")
	n.gone(t, "switched")

	n.stageSet(t, "deleted", toOther("app", "deleted"))
	n.waitReady(t, "deleted", "app", revision)
	n.removeSecret(t, "deleted")
	n.delete(t, "deleted")
	n.gone(t, "deleted")
	n.waitEvent(t, "deleted", "Warning", v1.EventOrphaned, why+"ConfigMap "+n.namespace+"/a, ConfigMap "+n.namespace+"/b")
	n.there.WaitFor(t, n.configMap("a"))
}

func (n *tenant) removeSecret(t testing.TB, name string) {
	t.Helper()
	secret := cluster.Ref("v1", "Secret", n.namespace, name)
	if err := n.Client.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	n.WaitGone(t, secret)
}

// T-25: twenty StageSets whose server takes connections and says nothing keep no other from being applied, and what was
// applied there before does not keep its StageSet from going.
func TestServerThatSaysNothing(t *testing.T) {
	s := setup(t)
	s.ownReconciler(t, "--max-teardown-wait=1s")
	n := s.remote(t)
	revision := n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	file := kubeconfigOf(t, n.there.TokenConfig(t, "default", hub))
	line := newLine(t, strings.TrimPrefix(file.cluster["server"].(string), "https://"))
	file.cluster["server"] = "https://" + line.Addr().String()
	n.kubeconfig(t, "line", file)
	n.stageSet(t, "applied", toOther("app", "line"))
	n.waitReady(t, "applied", "app", revision)

	line.cut()
	n.source(t, "other", map[string]string{"b.yaml": configMap("b", "1")})
	for i := range 20 {
		n.stageSet(t, fmt.Sprintf("silent-%d", i), toOther("other", "line"))
	}
	n.waitRefused(t, "silent-0", v1.ReasonTargetUnreachable)
	began := time.Now()
	n.stageSet(t, "here", oneStage("app"))
	n.waitReady(t, "here", "app", revision)
	if took := time.Since(began); took > cluster.Timeout/2 {
		t.Errorf("the other StageSet took %s", took)
	}
	n.delete(t, "applied")
	n.gone(t, "applied")
	n.waitEvent(t, "applied", "Warning", v1.EventOrphaned, "ConfigMap "+n.namespace+"/a")
}

// line leads to an address until it is cut. From then on it takes connections, and nothing comes of them.
type line struct {
	net.Listener
	address string

	mu    sync.Mutex
	ended bool
	ends  []net.Conn
}

func newLine(t testing.TB, address string) *line {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{Listener: listener, address: address}
	go l.serve()
	t.Cleanup(func() {
		_ = listener.Close()
		l.cut()
	})
	return l
}

func (l *line) serve() {
	for {
		near, err := l.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", l.address)
		if err != nil || !l.hold(near, far) {
			continue
		}
		go func() { _, _ = io.Copy(far, near) }()
		go func() { _, _ = io.Copy(near, far) }()
	}
}

// hold keeps both ends, and says whether something is to come of them.
func (l *line) hold(ends ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends = append(l.ends, ends...)
	return !l.ended
}

func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, end := range l.ends {
		_ = end.Close()
	}
	l.ends, l.ended = nil, true
}

// T-23: the server is reached by way of the proxy, which alone knows the name.
func TestKubeconfigWithAProxy(t *testing.T) {
	n := shared(t).remote(t)
	revision := n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	file := kubeconfigOf(t, n.there.TokenConfig(t, "default", hub))
	address := strings.TrimPrefix(file.cluster["server"].(string), "https://")
	proxy := newConnectProxy(t, "api.there.invalid:6443", address)
	file.cluster["server"], file.cluster["tls-server-name"] = "https://api.there.invalid:6443", "127.0.0.1"
	file.cluster["proxy-url"] = proxy.URL
	n.kubeconfig(t, "proxied", file)
	n.stageSet(t, "app", toOther("app", "proxied"))
	n.waitReady(t, "app", "app", revision)
	n.there.WaitFor(t, n.configMap("a"))
	if proxy.connected.Load() == 0 {
		t.Error("the proxy was not asked")
	}

	file.cluster["server"] = "https://elsewhere.invalid:6443"
	n.kubeconfig(t, "closed", file)
	n.stageSet(t, "closed", toOther("app", "closed"))
	n.wait(t, "closed", cluster.Condition(v1.ConditionReady, "False", v1.ReasonTargetUnreachable),
		messageHas("the proxy of the kubeconfig answered 403 Forbidden instead of connecting"))
}

// connectProxy is an HTTP proxy that connects to one address, by a name of its own.
type connectProxy struct {
	*httptest.Server
	connected atomic.Int64
}

func newConnectProxy(t testing.TB, name, address string) *connectProxy {
	t.Helper()
	p := &connectProxy{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Host != name {
			http.Error(w, "hunter2 is what the proxy says", http.StatusForbidden)
			return
		}
		server, err := net.Dial("tcp", address)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer server.Close()
		w.WriteHeader(http.StatusOK)
		client, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer client.Close()
		p.connected.Add(1)
		go func() { _, _ = io.Copy(server, buffered) }()
		_, _ = io.Copy(client, server)
	}))
	t.Cleanup(p.Close)
	return p
}
