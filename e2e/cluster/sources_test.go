package cluster

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestKubeconfigNamesTheCluster(t *testing.T) {
	c := Shared(t)
	t.Setenv("KUBECONFIG", c.Kubeconfig)
	t.Setenv("KUBEBUILDER_ASSETS", "/nowhere") // KUBECONFIG comes first
	existing := begin(t, options{})
	if existing.Config.Host != c.Config.Host {
		t.Errorf("it is at %s, want %s", existing.Config.Host, c.Config.Host)
	}
	if existing.AuditLog != "" || existing.Dir != "" {
		t.Errorf("it knows files of a cluster that is not its own: %q, %q", existing.AuditLog, existing.Dir)
	}
	works(t, existing)
	end(t, existing)
	works(t, c) // it is not the test's to stop
}

func TestAssetsAreUsedInsteadOfTheControlPlane(t *testing.T) {
	// bin/controlplane is what it is called.
	assets := t.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		if err := os.Symlink(mustBinary(t, "controlplane"), filepath.Join(assets, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBEBUILDER_ASSETS", assets)
	c := begin(t, options{})
	works(t, c)
	if got := len(c.Audit(t).Since(t)); got != 0 {
		t.Errorf("%d requests since just now", got)
	}
	end(t, c)
	if _, err := os.Stat(c.Dir); !os.IsNotExist(err) {
		t.Errorf("its folder is left: %v", err)
	}
}

func TestAssetsHaveNoNodes(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBEBUILDER_ASSETS", t.TempDir())
	if _, err := start(options{nodes: true}); err == nil {
		t.Error("it starts")
	}
}

func begin(t *testing.T, opts options) *Cluster {
	t.Helper()
	c, err := start(opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func end(t *testing.T, c *Cluster) {
	t.Helper()
	if err := c.stop(); err != nil {
		t.Error(err)
	}
}

// works checks that the cluster stores what it is given, and knows who gives it.
func works(t *testing.T, c *Cluster) {
	t.Helper()
	t.Run("stores objects", func(t *testing.T) {
		namespace := c.Namespace(t, "works")
		c.Apply(t, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: tenant, namespace: `+namespace+`}}`)
		c.WaitFor(t, Ref("v1", "ServiceAccount", namespace, "tenant"))
		tenant, err := client.New(c.TokenConfig(t, namespace, "tenant"), client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "any", Namespace: namespace}}
		if err := tenant.Create(context.Background(), object); err == nil {
			t.Error("an account without rights creates a ConfigMap")
		}
	})
}
