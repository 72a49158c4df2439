package e2e

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/e2e/cluster"
)

// hub is the account on the other cluster whose token kubeconfigs have: it may impersonate ServiceAccounts, and nothing else.
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
		other.Cluster = cluster.Another(scope{t}, cluster.Trusting(scope{t}, cluster.Shared(t), otherAudience, issuedHere))
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

// remote is a tenant with the Secret "remote", which leads to the other cluster, where the group of all accounts of the
// tenant's namespace is bound to the role edit. No ServiceAccount exists there.
func (s *suite) remote(t testing.TB) *remote {
	t.Helper()
	n := &remote{tenant: s.tenant(t), there: otherCluster(t)}
	n.there.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:serviceaccounts:%[1]s"}]`, n.namespace))
	n.kubeconfig(t, "remote", kubeconfigOf(t, n.there.TokenConfig(t, "default", hub)))
	return n
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
	user := "system:serviceaccount:" + n.namespace + ":" + deployer
	for _, request := range there.Since(t, func(e cluster.AuditEvent) bool { return e.User == hubUser }) {
		if request.Impersonated != user {
			t.Errorf("%s %s was asked for as %q, want %s", request.Verb, request.URI, request.Impersonated, user)
		}
	}

	// What is deleted there later is what the inventory says.
	n.delete(t, "app")
	n.gone(t, "app")
	n.there.WaitGone(t, n.configMap("a"))
}
