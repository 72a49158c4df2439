package tenant_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/tenant"
)

// An aggregated API without a server fails those who use it and nobody else (T-61).
func TestBrokenAggregatedAPI(t *testing.T) {
	w := newWorld(t)
	w.Apply(t, `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.dead.e2e.metio.wtf}
spec:
  group: dead.e2e.metio.wtf
  version: v1
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {name: missing, namespace: `+w.account.Namespace+`}`)
	broken := cluster.Ref("apiregistration.k8s.io/v1", "APIService", "", "v1.dead.e2e.metio.wtf")
	t.Cleanup(func() {
		if err := w.Client(t).Delete(context.Background(), broken); err != nil {
			t.Error(err)
		}
	})
	w.WaitFor(t, broken, cluster.Condition("Available", "False"))

	clients := newClients(t, tenant.Options{Config: w.TokenConfig(t, w.reconciler.Namespace, w.reconciler.Name)})
	c := clientFor(t, clients, w.account)
	apply(t, c, w.object("ConfigMap", "app", nil))
	if _, known, err := c.Scope(t.Context(), schema.GroupKind{Group: "apps", Kind: "Deployment"}); !known || err != nil {
		t.Errorf("Deployment: known %t, %v", known, err)
	}
	var failed *failure.Error
	err := useOfBrokenAPI(t, c)
	if !errors.As(tenant.Explain(err, "read", tenant.Reasons{}), &failed) || failed.Reason != v1.ReasonTargetUnreachable ||
		failed.Kind != failure.Transient {
		t.Errorf("the broken kind is explained as %v, want TargetUnreachable, Transient", failed)
	}
}

// useOfBrokenAPI is the error of a kind in the broken group, once the apiserver routes to it.
func useOfBrokenAPI(t testing.TB, c *tenant.Client) error {
	t.Helper()
	var answer error
	cluster.Eventually(t, func(ctx context.Context) error {
		_, answer = c.Get(ctx, schema.GroupVersionKind{Group: "dead.e2e.metio.wtf", Version: "v1", Kind: "Dead"}, "default", "app")
		if answer == nil || meta.IsNoMatchError(answer) {
			return fmt.Errorf("got %v, want the failure of the broken API", answer)
		}
		return nil
	})
	return answer
}

// A kind that did not exist is found when it does, by clients that asked for it before; and missed when it is gone.
func TestKindThatComesAndGoes(t *testing.T) {
	w := newWorld(t)
	c := clientFor(t, w.clients, w.account)
	kind := schema.GroupVersionKind{Group: "tenant.e2e.metio.wtf", Version: "v1beta1", Kind: "Gadget"}
	if _, known, err := c.Scope(t.Context(), kind.GroupKind()); known || err != nil {
		t.Fatalf("before the CRD: known %t, %v", known, err)
	}
	if _, err := c.Get(t.Context(), kind, w.account.Namespace, "app"); !meta.IsNoMatchError(err) {
		t.Fatalf("before the CRD: got %v, want no match", err)
	}
	definition := cluster.CustomKind(kind.Group, kind.Kind, "v1beta1", "v1alpha1")
	w.InstallCRDs(t, fstest.MapFS{"gadgets.yaml": {Data: []byte(definition)}})
	cluster.Eventually(t, func(ctx context.Context) error {
		namespaced, known, err := c.Scope(ctx, kind.GroupKind())
		if err != nil || !known || !namespaced {
			return fmt.Errorf("namespaced %t, known %t, %v", namespaced, known, err)
		}
		gadget := w.object("Gadget", "app", nil)
		gadget.SetGroupVersionKind(kind)
		_, err = c.Apply(ctx, gadget, tenant.ApplyOptions{FieldManager: "stageset"})
		return err
	})

	crd := cluster.Ref("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "gadgets.tenant.e2e.metio.wtf")
	if err := w.Client(t).Delete(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, func(ctx context.Context) error {
		if _, err := c.Get(ctx, kind, w.account.Namespace, "app"); !meta.IsNoMatchError(err) {
			return fmt.Errorf("after the CRD: got %v, want no match", err)
		}
		if _, known, err := c.Scope(ctx, kind.GroupKind()); known || err != nil {
			return fmt.Errorf("after the CRD: known %t, %v", known, err)
		}
		return nil
	})
}

// Kinds without a namespace are reached by name, whatever namespace is given.
func TestClusterScopedKinds(t *testing.T) {
	w := newWorld(t)
	admin := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.account.Namespace, Name: "viewer"}}
	if err := w.Client(t).Create(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	w.Apply(t, strings.ReplaceAll(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: TENANT-viewer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: viewer, namespace: TENANT}]`, "TENANT", w.account.Namespace))
	t.Cleanup(func() {
		binding := cluster.Ref("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", w.account.Namespace+"-viewer")
		if err := client.IgnoreNotFound(w.Client(t).Delete(context.Background(), binding)); err != nil {
			t.Error(err)
		}
	})
	c := clientFor(t, w.clients, tenant.Account{Namespace: w.account.Namespace, Name: "viewer"})
	cluster.Eventually(t, func(ctx context.Context) error {
		_, err := c.Get(ctx, schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, "anything", w.account.Namespace)
		return err
	})
	namespaced, known, err := c.Scope(t.Context(), schema.GroupKind{Kind: "Namespace"})
	if namespaced || !known || err != nil {
		t.Errorf("Namespace: namespaced %t, known %t, %v", namespaced, known, err)
	}
}
