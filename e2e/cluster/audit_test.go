package cluster_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/stageset/stageset/e2e/cluster"
)

func TestAuditTellsWhoAskedForWhat(t *testing.T) {
	c := cluster.Shared(t)
	namespace := c.Namespace(t, "audit")
	c.Apply(t, `
apiVersion: v1
kind: ServiceAccount
metadata: {name: tenant, namespace: `+namespace+`}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: `+namespace+`}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{kind: ServiceAccount, name: tenant, namespace: `+namespace+`}]`)
	tenant, err := kubernetes.NewForConfig(c.TokenConfig(t, namespace, "tenant"))
	if err != nil {
		t.Fatal(err)
	}
	configMaps := tenant.CoreV1().ConfigMaps(namespace)

	mark := c.Audit(t)
	want := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	applied := corev1apply.ConfigMap("settings", namespace).WithData(map[string]string{"a": "b"})
	want(configMaps.Apply(t.Context(), applied, metav1.ApplyOptions{FieldManager: "me", DryRun: []string{metav1.DryRunAll}}))
	want(configMaps.Apply(t.Context(), applied, metav1.ApplyOptions{FieldManager: "me"}))
	want(configMaps.List(t.Context(), metav1.ListOptions{}))
	watch, err := configMaps.Watch(t.Context(), metav1.ListOptions{})
	want(watch, err)
	watch.Stop()
	forbidden := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	if _, err := tenant.CoreV1().Nodes().Create(t.Context(), forbidden, metav1.CreateOptions{}); err == nil {
		t.Fatal("a tenant made a node")
	}

	user := "system:serviceaccount:" + namespace + ":tenant"
	settings := cluster.AuditEvent{
		User: user, Verb: "patch", Resource: "configmaps", Namespace: namespace, Name: "settings", FieldManager: "me",
	}
	dryRun, stored := settings, settings
	dryRun.Code, dryRun.DryRun = 201, true
	stored.Code = 201
	events := []cluster.AuditEvent{
		dryRun,
		stored,
		{User: user, Verb: "list", Resource: "configmaps", Namespace: namespace, Code: 200},
		{User: user, Verb: "watch", Resource: "configmaps", Namespace: namespace, Code: 200},
		{User: user, Verb: "create", Resource: "nodes", Code: 403},
	}
	ignoreURI := cmpopts.IgnoreFields(cluster.AuditEvent{}, "URI")
	if diff := cmp.Diff(events, mark.Since(t, cluster.ByUser(user)), ignoreURI); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	writes := mark.Since(t, cluster.ByAccount(namespace, "tenant"), cluster.InNamespace(namespace), cluster.Writes)
	if diff := cmp.Diff([]cluster.AuditEvent{stored}, writes, ignoreURI); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if later := c.Audit(t).Since(t, cluster.ByUser(user)); len(later) != 0 {
		t.Errorf("after a new mark: got %v, want nothing", later)
	}
}
