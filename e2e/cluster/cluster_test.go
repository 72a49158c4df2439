package cluster_test

import (
	"os"
	"testing"
	"testing/fstest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/stageset/stageset/e2e/cluster"
)

func TestMain(m *testing.M) { os.Exit(cluster.Run(m, cluster.WithNodes())) }

func TestCRDsAreServedAfterInstall(t *testing.T) {
	c := cluster.Shared(t)
	c.InstallCRDs(t, fstest.MapFS{
		"deep/down/widgets.yaml": {Data: []byte(cluster.CustomKind("e2e.metio.wtf", "Widget", "v1"))},
		"kustomization.yaml":     {Data: []byte("kind: Kustomization")},
		"embed.go":               {Data: []byte("package crds")},
	})
	namespace := c.Namespace(t, "crds")
	c.Apply(t, `
# A document without content is no object.
---
apiVersion: e2e.metio.wtf/v1
kind: Widget
metadata: {name: first, namespace: `+namespace+`}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: second, namespace: `+namespace+`}`)
	c.WaitFor(t, cluster.Ref("e2e.metio.wtf/v1", "Widget", namespace, "first"))
	c.WaitFor(t, cluster.Ref("v1", "ConfigMap", namespace, "second"))
}

func TestTokenIsThatOfTheServiceAccountAndNothingElse(t *testing.T) {
	c := cluster.Shared(t)
	namespace := c.Namespace(t, "token")
	c.Apply(t, `
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: `+namespace+`}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: `+namespace+`}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: ServiceAccount, name: reader, namespace: `+namespace+`}]`)
	tenant, err := kubernetes.NewForConfig(c.TokenConfig(t, namespace, "reader"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tenant.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("what RBAC grants: %v", err)
	}
	if _, err := tenant.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("what RBAC does not grant: got %v, want Forbidden", err)
	}
}

func TestNamespaceIsDeletedAfterTheTest(t *testing.T) {
	c := cluster.Shared(t)
	var namespace string
	t.Run("uses one", func(t *testing.T) { namespace = c.Namespace(t, "short") })
	c.WaitGone(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
}
