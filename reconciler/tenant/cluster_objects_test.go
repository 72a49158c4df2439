package tenant_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/tenant"
)

func TestApply(t *testing.T) {
	w := newWorld(t)
	c := clientFor(t, w.clients, w.account)
	data := func(value string) *unstructured.Unstructured {
		return w.object("ConfigMap", "app", map[string]any{"data": map[string]any{"key": value}})
	}

	planned, err := c.Apply(t.Context(), data("planned"), tenant.ApplyOptions{FieldManager: "stageset", DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	if value, _, _ := unstructured.NestedString(planned.Object, "data", "key"); value != "planned" {
		t.Errorf("the dry run has %q, want the applied value", value)
	}
	if _, err := c.Get(t.Context(), configMap, w.account.Namespace, "app"); !apierrors.IsNotFound(err) {
		t.Errorf("after a dry run got %v, want NotFound", err)
	}

	applied := apply(t, c, data("one"))
	if len(applied.GetManagedFields()) > 0 || applied.GetUID() == "" || applied.GetResourceVersion() == "" {
		t.Errorf("applied is %v, want the server's object without managedFields", applied.Object)
	}
	_, err = c.Apply(t.Context(), data("two"), tenant.ApplyOptions{FieldManager: "other"})
	if !apierrors.IsConflict(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) {
		t.Errorf("another manager without force got %v, want a conflict", err)
	}
	taken, err := c.Apply(t.Context(), data("two"),
		tenant.ApplyOptions{FieldManager: "other", Force: true, KeepManagedFields: true})
	if err != nil {
		t.Fatal(err)
	}
	owners := []string{}
	for _, entry := range taken.GetManagedFields() {
		owners = append(owners, entry.Manager+" "+string(entry.Operation))
	}
	slices.Sort(owners)
	if diff := cmp.Diff([]string{"other Apply"}, owners); diff != "" {
		t.Errorf("owners after force (-want +got):\n%s", diff)
	}

	t.Run("a namespace that does not exist", func(t *testing.T) {
		stray := data("one")
		stray.SetNamespace("nowhere")
		_, err := c.Apply(t.Context(), stray, tenant.ApplyOptions{FieldManager: "stageset"})
		if !apierrors.IsForbidden(err) {
			t.Errorf("got %v, want the tenant's missing permission", err)
		}
	})
	t.Run("a value of the wrong type", func(t *testing.T) {
		_, err := c.Apply(t.Context(), w.object("ConfigMap", "app", map[string]any{"data": map[string]any{"key": int64(1)}}),
			tenant.ApplyOptions{FieldManager: "stageset"})
		if err == nil || !strings.Contains(err.Error(), ".data.key") {
			t.Errorf("got %v, want the field", err)
		}
	})
}

// A Secret that the apiserver cannot read is an error that does not quote it (I8).
func TestErrorsOfTheAPIServerDoNotQuoteSecrets(t *testing.T) {
	w := newWorld(t)
	c := clientFor(t, w.clients, w.account)
	const (
		value    = "735928559"
		withheld = "the API server cannot read the Secret, and what it says is withheld because it may quote values: "
		encoding = withheld + "the values under data must be base64 strings, which these are not: "
		unknown  = withheld + "check that it has only fields of a Secret, and that each is of the right type"
	)
	data := func(value any) map[string]any { return map[string]any{"data": map[string]any{"key": value}} }
	for name, test := range map[string]struct {
		set  map[string]any
		want string
	}{
		"a number":         {data(int64(735928559)), encoding + "data.key"},
		"a list":           {data([]any{value}), encoding + "data.key"},
		"no base64":        {data(value + "!"), encoding + "data.key"},
		"no keys":          {map[string]any{"data": value}, encoding + "data"},
		"a field it lacks": {map[string]any{"key": value}, unknown},
		"a label of a wrong type": {
			map[string]any{"metadata": map[string]any{"labels": map[string]any{"key": int64(735928559)}}}, unknown,
		},
		"a key too few": {map[string]any{"type": "kubernetes.io/tls", "stringData": map[string]any{"tls.crt": value}},
			`Secret "key" is invalid: data[tls.key]: Required value`},
	} {
		t.Run(name, func(t *testing.T) {
			for _, dryRun := range []bool{true, false} {
				_, err := c.Apply(t.Context(), w.object("Secret", "key", test.set),
					tenant.ApplyOptions{FieldManager: "stageset", DryRun: dryRun})
				var failed *failure.Error
				if !errors.As(tenant.Explain(err, "apply Secret key", tenant.Reasons{}), &failed) {
					t.Fatal("the Secret was accepted, so this shows nothing")
				}
				if diff := cmp.Diff("apply Secret key: "+test.want, failed.Error()); diff != "" {
					t.Errorf("dry run %t: message (-want +got):\n%s", dryRun, diff)
				}
			}
		})
	}
}

// A delete hits the object that was looked at and no other, and says when nothing is left of it (I4).
func TestDelete(t *testing.T) {
	w := newWorld(t)
	c := clientFor(t, w.clients, w.account)
	remove := func(object *unstructured.Unstructured, uid types.UID, resourceVersion string) (bool, error) {
		return c.Delete(t.Context(), object.GroupVersionKind(), object.GetNamespace(), object.GetName(),
			tenant.DeleteOptions{UID: uid, ResourceVersion: resourceVersion})
	}

	t.Run("another uid or resourceVersion", func(t *testing.T) {
		old := apply(t, c, w.object("ConfigMap", "changed", nil))
		live := apply(t, c, w.object("ConfigMap", "changed", map[string]any{"data": map[string]any{"a": "b"}}))
		if gone, err := remove(live, "another", live.GetResourceVersion()); gone || !apierrors.IsConflict(err) {
			t.Errorf("another uid: got gone %t, %v; want a conflict", gone, err)
		}
		if gone, err := remove(live, live.GetUID(), old.GetResourceVersion()); gone || !apierrors.IsConflict(err) {
			t.Errorf("an old resourceVersion: got gone %t, %v; want a conflict", gone, err)
		}
		if _, err := c.Get(t.Context(), configMap, w.account.Namespace, "changed"); err != nil {
			t.Errorf("the object is not there any more: %v", err)
		}
	})
	t.Run("a finalizer", func(t *testing.T) {
		object := w.object("ConfigMap", "held", map[string]any{
			"metadata": map[string]any{"finalizers": []any{"e2e.metio.wtf/held"}},
		})
		live := apply(t, c, object)
		if gone, err := remove(live, live.GetUID(), live.GetResourceVersion()); gone || err != nil {
			t.Errorf("got gone %t, %v; want it to be terminating", gone, err)
		}
		terminating, err := c.Get(t.Context(), configMap, w.account.Namespace, "held")
		if err != nil || terminating.GetDeletionTimestamp() == nil {
			t.Fatalf("got %v, %v; want it to be terminating", terminating, err)
		}
		if gone, err := remove(live, live.GetUID(), terminating.GetResourceVersion()); gone || err != nil {
			t.Errorf("the second time got gone %t, %v; want it to be terminating still", gone, err)
		}
		released := apply(t, c, w.object("ConfigMap", "held", nil))
		if gone, err := remove(live, live.GetUID(), released.GetResourceVersion()); !gone || err != nil {
			t.Errorf("when nothing is there got gone %t, %v; want gone", gone, err)
		}
	})
	port := map[string]any{"spec": map[string]any{"ports": []any{map[string]any{"port": int64(80)}}}}
	for kind, test := range map[string]struct {
		set  map[string]any
		said bool // whether the apiserver says at once that it is gone
	}{
		"ConfigMap": {nil, true}, "Secret": {nil, true}, "ServiceAccount": {nil, false}, "Service": {port, false},
	} {
		t.Run(kind, func(t *testing.T) {
			live := apply(t, c, w.object(kind, "plain", test.set))
			gone, err := remove(live, live.GetUID(), live.GetResourceVersion())
			if gone != test.said || err != nil {
				t.Errorf("got gone %t, %v; want %t", gone, err, test.said)
			}
			_, err = c.Get(t.Context(), live.GroupVersionKind(), live.GetNamespace(), live.GetName())
			if !apierrors.IsNotFound(err) {
				t.Errorf("then got %v, want NotFound", err)
			}
			if gone, err := remove(live, live.GetUID(), live.GetResourceVersion()); !gone || err != nil {
				t.Errorf("the second time got gone %t, %v; want gone", gone, err)
			}
		})
	}
}

// Lists come in pages, of the wanted objects, with or without what is in them.
func TestList(t *testing.T) {
	const objects = 501 // one more than a page
	w := newWorld(t)
	c := clientFor(t, w.clients, w.account)
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for n := worker; n < objects; n += 8 {
				object := w.object("ConfigMap", fmt.Sprintf("listed-%03d", n), map[string]any{
					"metadata": map[string]any{"labels": map[string]any{"listed": "true"}},
					"data":     map[string]any{"key": "value"},
				})
				if _, err := c.Apply(t.Context(), object, tenant.ApplyOptions{FieldManager: "stageset"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	apply(t, c, w.object("ConfigMap", "not-listed", nil))

	for name, metadataOnly := range map[string]bool{"metadata only": true, "full": false} {
		t.Run(name, func(t *testing.T) {
			mark := w.Audit(t)
			names := map[string]int{}
			err := c.List(t.Context(), configMap, tenant.ListOptions{
				Namespace: w.account.Namespace, Selector: labels.SelectorFromSet(labels.Set{"listed": "true"}),
				MetadataOnly: metadataOnly,
			}, func(object *unstructured.Unstructured) {
				names[object.GetName()]++
				if object.GroupVersionKind() != configMap || object.GetUID() == "" || object.GetResourceVersion() == "" {
					t.Errorf("visited %v, want a ConfigMap with its metadata", object.Object)
				}
				if _, found := object.Object["data"]; found == metadataOnly {
					t.Errorf("data of %s is there: %t", object.GetName(), found)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if len(names) != objects {
				t.Errorf("visited %d objects, want %d", len(names), objects)
			}
			for name, times := range names {
				if times != 1 {
					t.Errorf("visited %s %d times", name, times)
				}
			}
			lists := mark.Since(t, cluster.ByAccount(w.account.Namespace, w.account.Name))
			if len(lists) != 2 {
				t.Errorf("it took %v, want two pages", lists)
			}
		})
	}
}
