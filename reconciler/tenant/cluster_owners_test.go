package tenant_test

import (
	"encoding/json"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stageset/stageset/reconciler/tenant"
)

// What an account may do is asked about the object, not about what admission says of it.
func TestMay(t *testing.T) {
	w := newWorld(t)
	c := clientFor(t, w.clients, w.account)
	secret := schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	for name, test := range map[string]struct {
		verb, namespace string
		kind            schema.GroupVersionKind
		want            bool
	}{
		"granted":           {verb: "patch", kind: secret, namespace: w.account.Namespace, want: true},
		"another verb":      {verb: "update", kind: secret, namespace: w.account.Namespace},
		"another namespace": {verb: "patch", kind: secret, namespace: "default"},
		"another kind": {
			verb: "patch", kind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, namespace: w.account.Namespace,
		},
		"cluster-scoped": {verb: "get", kind: schema.GroupVersionKind{Version: "v1", Kind: "Node"}, namespace: "default"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.May(t.Context(), test.verb, test.kind, test.namespace, "app")
			if err != nil || got != test.want {
				t.Errorf("got %t, %v, want %t", got, err, test.want)
			}
		})
	}
}

func TestHasScale(t *testing.T) {
	w := newWorld(t)
	c := clientFor(t, w.clients, w.account)
	for kind, want := range map[schema.GroupVersionKind]bool{
		{Group: "apps", Version: "v1", Kind: "Deployment"}: true,
		{Group: "apps", Version: "v1", Kind: "DaemonSet"}:  false,
		configMap: false,
	} {
		if got, err := c.HasScale(t.Context(), kind); err != nil || got != want {
			t.Errorf("%s: got %t, %v, want %t", kind.Kind, got, err, want)
		}
	}
}

// The owners of fields are replaced as they were seen, or not at all.
func TestSetManagedFields(t *testing.T) {
	w := newWorld(t)
	c := clientFor(t, w.clients, w.account)
	object := w.object("ConfigMap", "app", map[string]any{"data": map[string]any{"key": "1"}})
	apply(t, c, object)
	get := func() ([]metav1.ManagedFieldsEntry, string) {
		live, err := c.Get(t.Context(), configMap, w.account.Namespace, "app")
		if err != nil {
			t.Fatal(err)
		}
		return live.GetManagedFields(), live.GetResourceVersion()
	}
	managed, seen := get()
	managed[0].Manager = "other"
	live := object.DeepCopy()
	live.SetResourceVersion(seen)
	if err := c.SetManagedFields(t.Context(), live, managed); err != nil {
		t.Fatal(err)
	}
	if managed, _ := get(); len(managed) != 1 || managed[0].Manager != "other" {
		t.Errorf("managedFields are %v, want one entry of other", managed)
	}
	if err := c.SetManagedFields(t.Context(), live, managed); !apierrors.IsConflict(err) {
		t.Errorf("with an old resourceVersion: got %v, want a conflict", err)
	}
}

// Who asks for it gets dependents deleted first: the object stays until they are gone.
func TestDeleteDependentsFirst(t *testing.T) {
	w := newWorld(t)
	c := clientFor(t, w.clients, w.account)
	owner := apply(t, c, w.object("ConfigMap", "owner", nil))
	dependent := w.object("ConfigMap", "dependent", nil)
	dependent.SetFinalizers([]string{"e2e.metio.wtf/hold"})
	blocks := true
	dependent.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: "v1", Kind: "ConfigMap", Name: owner.GetName(), UID: owner.GetUID(), BlockOwnerDeletion: &blocks,
	}})
	w.Apply(t, yamlOf(t, dependent))
	options := tenant.DeleteOptions{UID: owner.GetUID(), ResourceVersion: owner.GetResourceVersion(), DependentsFirst: true}
	if gone, err := c.Delete(t.Context(), configMap, w.account.Namespace, "owner", options); err != nil || gone {
		t.Fatalf("gone %t, %v, want it to wait", gone, err)
	}
	live, err := c.Get(t.Context(), configMap, w.account.Namespace, "owner")
	if err != nil || live.GetDeletionTimestamp() == nil {
		t.Errorf("the owner is %v (%v), want it to be there and being deleted", live, err)
	}
	dependent.SetFinalizers(nil)
	w.Apply(t, yamlOf(t, dependent))
	w.WaitGone(t, dependent)
	w.WaitGone(t, owner)
}

// yamlOf is an object as JSON, which is YAML.
func yamlOf(t testing.TB, object *unstructured.Unstructured) string {
	t.Helper()
	text, err := json.Marshal(object.Object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
