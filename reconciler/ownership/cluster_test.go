package ownership_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/ownership"
	"github.com/stageset/stageset/reconciler/takeover"
	"github.com/stageset/stageset/reconciler/tenant"
)

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

// world is a namespace with an account that may do everything.
type world struct {
	*cluster.Cluster
	namespace string
	target    *tenant.Client
	claims    claims
	applier   ownership.Applier
}

// claims are the same for all objects.
type claims []inventory.Claim

func (c *claims) Claims(context.Context, inventory.Place) ([]inventory.Claim, error) {
	return slices.Clone(*c), nil
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Cluster: cluster.Shared(t)}
	w.namespace = w.Namespace(t, "owner")
	w.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: deployer, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: deployer, namespace: %[1]s}]`, w.namespace))
	w.deleteAfter(t, cluster.Ref("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", w.namespace))
	clients, err := tenant.New(tenant.Options{Config: w.Config})
	if err != nil {
		t.Fatal(err)
	}
	w.target, err = clients.Target(t.Context(), tenant.Destination{}, tenant.Account{Namespace: w.namespace, Name: "deployer"})
	if err != nil {
		t.Fatal(err)
	}
	// RBAC of the apiserver is eventually consistent.
	cluster.Eventually(t, func(ctx context.Context) error {
		_, err := w.target.Get(ctx, cluster.Ref("v1", "Namespace", "", "").GroupVersionKind(), "", w.namespace)
		return err
	})
	earlier, err := takeover.ParseManagers([]string{"kubectl", "kubectl-*", "before-first-apply", "kustomize-controller"})
	if err != nil {
		t.Fatal(err)
	}
	w.applier = ownership.Applier{
		Owner: ownership.Owner{Namespace: w.namespace, Name: "us"}, Claims: &w.claims, Earlier: earlier,
		Cluster: v1.ClusterLocal,
	}
	return w
}

func (w *world) deleteAfter(t *testing.T, object client.Object) {
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(w.Client(t).Delete(context.Background(), object)); err != nil {
			t.Error(err)
		}
	})
}

// object reads a manifest of the namespace.
func (w *world) object(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &object.Object); err != nil {
		t.Fatalf("%v in\n%s", err, manifest)
	}
	object.SetNamespace(w.namespace)
	return object
}

// by applies a manifest as another field manager.
func (w *world) by(t *testing.T, manager, manifest string) {
	t.Helper()
	options := tenant.ApplyOptions{FieldManager: manager, Force: true}
	if _, err := w.target.Apply(t.Context(), w.object(t, manifest), options); err != nil {
		t.Fatal(err)
	}
}

// updated writes a manifest as a field manager that does not apply.
func (w *world) updated(t *testing.T, manager, manifest string) {
	t.Helper()
	admin := w.Client(t)
	cluster.Eventually(t, func(ctx context.Context) error { // the cluster's own controllers write too
		object := w.object(t, manifest)
		live := object.DeepCopy()
		err := admin.Get(ctx, client.ObjectKeyFromObject(object), live)
		switch {
		case apierrors.IsNotFound(err):
			return admin.Create(ctx, object, client.FieldOwner(manager))
		case err != nil:
			return err
		}
		object.SetResourceVersion(live.GetResourceVersion())
		return admin.Update(ctx, object, client.FieldOwner(manager))
	})
}

// apply does what a release does with an object: dry-run, inherit, apply.
func (w *world) apply(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	object := w.applier.Owner.Stamp(w.object(t, manifest), "app")
	answer, err := w.applier.Apply(t.Context(), w.target, object, ownership.Request{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	inherits, err := w.applier.Inherits(t.Context(), w.target, object, answer)
	if err == nil && inherits {
		err = w.applier.Inherit(t.Context(), w.target, object)
	}
	if err != nil {
		t.Fatal(err)
	}
	applied, err := w.applier.Apply(t.Context(), w.target, object, ownership.Request{})
	if err != nil {
		t.Fatal(err)
	}
	return applied
}

// managers are those of an object, with their operations; without the cluster's own controllers, which write its status.
func managers(object *unstructured.Unstructured) []string {
	var list []string
	for _, entry := range object.GetManagedFields() {
		if entry.Manager != "kube-controller-manager" {
			list = append(list, entry.Manager+" "+string(entry.Operation))
		}
	}
	slices.Sort(list)
	return list
}

func (w *world) ours() string {
	return w.applier.Owner.FieldManager() + " " + string(metav1.ManagedFieldsOperationApply)
}

const (
	configMap  = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, %s}\ndata: {%s}\n"
	deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  %s
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {%s}}
    spec: {containers: [{name: app, image: "app:1"}]}
`
)

// What earlier tools have set, and is not rendered, goes when the object is first applied, and not before.
func TestEarlierToolsAreTakenOver(t *testing.T) {
	for name, before := range map[string]func(t *testing.T, w *world){
		"kubectl apply": func(t *testing.T, w *world) {
			w.updated(t, "kubectl-client-side-apply",
				fmt.Sprintf(configMap, `annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}"}`, "old: '1', both: '1'"))
		},
		"kubectl apply --server-side": func(t *testing.T, w *world) {
			w.by(t, "kubectl", fmt.Sprintf(configMap, "labels: {old: label}", "old: '1', both: '1'"))
		},
		"kustomize-controller, and an edit": func(t *testing.T, w *world) {
			w.by(t, "kustomize-controller", fmt.Sprintf(configMap, "labels: {old: label}", "both: '1'"))
			w.updated(t, "kubectl-edit", fmt.Sprintf(configMap, "labels: {old: label}", "both: '1', old: '2'"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			before(t, w)
			applied := w.apply(t, fmt.Sprintf(configMap, "", "both: '1', new: '1'"))
			data, _, _ := unstructured.NestedStringMap(applied.Object, "data")
			if diff := cmp.Diff(map[string]string{"both": "1", "new": "1"}, data); diff != "" {
				t.Errorf("data (-want +got):\n%s", diff)
			}
			if applied.GetLabels()["old"] != "" || len(applied.GetAnnotations()) > 0 {
				t.Errorf("labels %v and annotations %v are left", applied.GetLabels(), applied.GetAnnotations())
			}
			if diff := cmp.Diff([]string{w.ours()}, managers(applied)); diff != "" {
				t.Errorf("managers (-want +got):\n%s", diff)
			}
		})
	}
}

// After that, what somebody adds with kubectl is theirs; what they set and is rendered too goes when it is not rendered any
// more.
func TestWhatIsAddedLaterStays(t *testing.T) {
	w := newWorld(t)
	w.apply(t, fmt.Sprintf(configMap, "", "a: '1'"))
	patch := client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"stages.metio.wtf/prune":"disabled"}},"data":{"theirs":"1","hotfix":"1"}}`))
	if err := w.Client(t).Patch(t.Context(), w.object(t, configMapRef), patch, client.FieldOwner("kubectl-patch")); err != nil {
		t.Fatal(err)
	}
	w.apply(t, fmt.Sprintf(configMap, "", "a: '1', hotfix: '1'"))
	applied := w.apply(t, fmt.Sprintf(configMap, "", "a: '1'"))
	data, _, _ := unstructured.NestedStringMap(applied.Object, "data")
	if diff := cmp.Diff(map[string]string{"a": "1", "theirs": "1"}, data); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
	if applied.GetAnnotations()["stages.metio.wtf/prune"] != "disabled" {
		t.Errorf("annotations are %v", applied.GetAnnotations())
	}
}

const configMapRef = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"

// A restart by hand is not undone: that would restart the Pods again.
func TestRestartByHandStays(t *testing.T) {
	w := newWorld(t)
	w.updated(t, "kubectl-client-side-apply", fmt.Sprintf(deployment, "replicas: 1", ""))
	restarted := fmt.Sprintf(deployment, "replicas: 1", "kubectl.kubernetes.io/restartedAt: now")
	w.updated(t, "kubectl-rollout", restarted)
	applied := w.apply(t, fmt.Sprintf(deployment, "replicas: 1", ""))
	annotations, _, _ := unstructured.NestedStringMap(applied.Object, "spec", "template", "metadata", "annotations")
	if diff := cmp.Diff(map[string]string{"kubectl.kubernetes.io/restartedAt": "now"}, annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	again := w.apply(t, fmt.Sprintf(deployment, "replicas: 1", ""))
	if again.GetGeneration() != applied.GetGeneration() {
		t.Error("the same apply changed something")
	}
}

// T-56: the number of replicas stays when it is not rendered any more, whoever had set it.
func TestReplicasAreHandedOver(t *testing.T) {
	without := fmt.Sprintf(deployment, "", "")
	for name, tc := range map[string]struct {
		before func(t *testing.T, w *world)
		want   []string
	}{
		"we had": {
			before: func(t *testing.T, w *world) { w.apply(t, fmt.Sprintf(deployment, "replicas: 3", "")) },
			want:   []string{ownership.HandoverManager + " Apply"},
		},
		"kubectl had, before the adoption": {
			before: func(t *testing.T, w *world) {
				w.updated(t, "kubectl-client-side-apply", fmt.Sprintf(deployment, "replicas: 3", ""))
			},
			want: []string{ownership.HandoverManager + " Apply"},
		},
		"somebody had scaled": {
			before: func(t *testing.T, w *world) {
				w.apply(t, fmt.Sprintf(deployment, "replicas: 1", ""))
				patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":3}}`))
				ref := w.object(t, without)
				if err := w.Client(t).SubResource("scale").Patch(t.Context(), ref, patch, client.FieldOwner("autoscaler")); err != nil {
					t.Fatal(err)
				}
			},
			want: []string{"autoscaler Update"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.before(t, w)
			applied := w.apply(t, without)
			if got, _, _ := unstructured.NestedInt64(applied.Object, "spec", "replicas"); got != 3 {
				t.Errorf("%d replicas, want 3", got)
			}
			others := slices.DeleteFunc(managers(applied), func(manager string) bool { return manager == w.ours() })
			if diff := cmp.Diff(tc.want, others); diff != "" {
				t.Errorf("other managers (-want +got):\n%s", diff)
			}
			again := w.apply(t, without)
			if again.GetGeneration() != applied.GetGeneration() {
				t.Error("the same apply changed something")
			}
			// Whoever renders the number again has it.
			scaled := w.apply(t, fmt.Sprintf(deployment, "replicas: 5", ""))
			if got, _, _ := unstructured.NestedInt64(scaled.Object, "spec", "replicas"); got != 5 {
				t.Errorf("%d replicas, want 5", got)
			}
		})
	}
}

// T-68: what another StageSet has applied is its own as long as its inventory says so, whatever the labels say; then it is
// taken over with all its fields.
func TestOtherStageSets(t *testing.T) {
	w := newWorld(t)
	other := ownership.Applier{Owner: ownership.Owner{Namespace: w.namespace, Name: "other"}, Claims: &w.claims}
	theirs := other.Owner.Stamp(w.object(t, fmt.Sprintf(configMap, "", "theirs: '1', both: '1'")), "app")
	if _, err := other.Apply(t.Context(), w.target, theirs, ownership.Request{New: true}); err != nil {
		t.Fatal(err)
	}
	w.claims = claims{{Namespace: w.namespace, Name: "other"}, {Namespace: w.namespace, Name: "us"}}
	labels := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"stages.metio.wtf/name":"nobody"}}}`))
	if err := w.Client(t).Patch(t.Context(), w.object(t, configMapRef), labels); err != nil {
		t.Fatal(err)
	}
	ours := w.applier.Owner.Stamp(w.object(t, fmt.Sprintf(configMap, "", "both: '2'")), "app")
	_, err := w.applier.Apply(t.Context(), w.target, ours, ownership.Request{DryRun: true})
	want := fmt.Sprintf("ConfigMap %[1]s/a belongs to StageSet %[1]s/other: remove it from one of the two", w.namespace)
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}

	w.claims = claims{{Namespace: w.namespace, Name: "us"}}
	applied := w.apply(t, fmt.Sprintf(configMap, "", "both: '2'"))
	data, _, _ := unstructured.NestedStringMap(applied.Object, "data")
	if diff := cmp.Diff(map[string]string{"both": "2"}, data); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
	if slices.Contains(managers(applied), other.Owner.FieldManager()+" Apply") {
		t.Errorf("the StageSet that is gone is still a manager: %v", managers(applied))
	}
}

// T-68: of two StageSets that have written ahead what does not exist yet, the older makes it.
func TestElderMakesWhatIsNew(t *testing.T) {
	w := newWorld(t)
	w.applier.Age = inventory.Age{Created: metav1.Unix(1000, 0).Time, UID: "m"}
	for name, tc := range map[string]struct {
		cluster, namespace string
		other              inventory.Age
		want               bool
	}{
		"the other is older":               {v1.ClusterLocal, "elsewhere", inventory.Age{Created: metav1.Unix(999, 0).Time, UID: "z"}, false},
		"the other is younger":             {v1.ClusterLocal, "elsewhere", inventory.Age{Created: metav1.Unix(1001, 0).Time, UID: "a"}, true},
		"of one second, by UID":            {v1.ClusterLocal, "elsewhere", inventory.Age{Created: metav1.Unix(1000, 0).Time, UID: "z"}, true},
		"of one second, by UID, the other": {v1.ClusterLocal, "elsewhere", inventory.Age{Created: metav1.Unix(1000, 0).Time, UID: "a"}, false},
		// What another namespace's kubeconfig calls the same cluster may be a server of its own making.
		"elsewhere, of another cluster":    {"5f1c", "elsewhere", inventory.Age{}, true},
		"of the namespace, of its cluster": {"5f1c", w.namespace, inventory.Age{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w.claims = claims{
				{Namespace: w.namespace, Name: "us", Age: w.applier.Age},
				{Namespace: tc.namespace, Name: "other", Age: tc.other},
			}
			w.applier.Cluster = tc.cluster
			object := w.applier.Owner.Stamp(w.object(t, fmt.Sprintf(configMap, "", "a: '1'")), "app")
			_, err := w.applier.Apply(t.Context(), w.target, object, ownership.Request{DryRun: true, New: true})
			var conflict *ownership.ConflictError
			if made := err == nil; made != tc.want || !made && !errors.As(err, &conflict) {
				t.Errorf("got %v, want it made: %t", err, tc.want)
			}
		})
	}
}

// I3: an apply that is to change an object never makes another one, which no inventory expects.
func TestWhatIsToBeChangedIsNotMadeAnew(t *testing.T) {
	for name, meanwhile := range map[string]func(t *testing.T, w *world){
		"deleted":  func(*testing.T, *world) {},
		"replaced": func(t *testing.T, w *world) { w.by(t, "somebody", fmt.Sprintf(configMap, "", "theirs: '1'")) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			before := w.apply(t, fmt.Sprintf(configMap, "", "a: '1'"))
			if err := w.Client(t).Delete(t.Context(), w.object(t, configMapRef)); err != nil {
				t.Fatal(err)
			}
			meanwhile(t, w)
			object := w.applier.Owner.Stamp(w.object(t, fmt.Sprintf(configMap, "", "a: '2'")), "app")
			_, err := w.applier.Apply(t.Context(), w.target, object, ownership.Request{UID: before.GetUID()})
			if failed := failure.From(err); failed.Reason != v1.ReasonProgressing || failed.Kind != failure.Transient {
				t.Errorf("got %s %s: %v", failed.Kind, failed.Reason, err)
			}
			live := w.object(t, configMapRef)
			if err := w.Client(t).Get(t.Context(), client.ObjectKeyFromObject(live), live); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
			if slices.Contains(managers(live), w.ours()) {
				t.Errorf("it was applied: %v", live.Object)
			}
		})
	}
	// The object that it is about is changed.
	w := newWorld(t)
	before := w.apply(t, fmt.Sprintf(configMap, "", "a: '1'"))
	object := w.applier.Owner.Stamp(w.object(t, fmt.Sprintf(configMap, "", "a: '2'")), "app")
	after, err := w.applier.Apply(t.Context(), w.target, object, ownership.Request{UID: before.GetUID()})
	if err != nil {
		t.Fatal(err)
	}
	data, _, _ := unstructured.NestedStringMap(after.Object, "data")
	if diff := cmp.Diff(map[string]string{"a": "2"}, data); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
}

// An object whose managedFields speak of a version that its definition does not have any more can be applied in no version,
// until they are updated.
func TestVersionThatIsGone(t *testing.T) {
	w := newWorld(t)
	group := w.namespace + ".example.com"
	ref := cluster.Ref("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "gadgets."+group)
	w.Apply(t, cluster.CustomKind(group, "Gadget", "v1", "v1alpha1"))
	w.deleteAfter(t, ref)
	w.WaitFor(t, ref, cluster.Condition("Established", "True"))
	gadget := func(version string) *unstructured.Unstructured {
		manifest := "apiVersion: " + group + "/" + version + "\nkind: Gadget\nmetadata: {name: one}\nspec: {size: 1}\n"
		return w.applier.Owner.Stamp(w.object(t, manifest), "app")
	}
	cluster.Eventually(t, func(ctx context.Context) error {
		_, err := w.applier.Apply(ctx, w.target, gadget("v1alpha1"), ownership.Request{New: true})
		return err
	})
	if _, err := w.target.Apply(t.Context(), gadget("v1alpha1"), tenant.ApplyOptions{FieldManager: "somebody"}); err != nil {
		t.Fatal(err)
	}
	w.Apply(t, cluster.CustomKind(group, "Gadget", "v1"))
	cluster.Eventually(t, func(ctx context.Context) error {
		_, err := w.applier.Apply(ctx, w.target, gadget("v1"), ownership.Request{DryRun: true})
		if !apierrors.IsInternalError(err) {
			return fmt.Errorf("got %w, want the API server to complain", err)
		}
		return nil
	})
	if outdated, err := w.applier.Outdated(t.Context(), w.target, gadget("v1")); err != nil || !outdated {
		t.Fatalf("outdated %t, %v", outdated, err)
	}
	if err := w.applier.Update(t.Context(), w.target, gadget("v1")); err != nil {
		t.Fatal(err)
	}
	applied, err := w.applier.Apply(t.Context(), w.target, gadget("v1"), ownership.Request{})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"somebody Apply", w.ours()}; !slices.Equal(want, managers(applied)) {
		t.Errorf("managers are %v, want %v", managers(applied), want)
	}
	if outdated, err := w.applier.Outdated(t.Context(), w.target, gadget("v1")); err != nil || outdated {
		t.Errorf("after the update: outdated %t, %v", outdated, err)
	}
}
