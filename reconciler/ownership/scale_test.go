package ownership_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/reconciler/ownership"
	"github.com/stageset/stageset/reconciler/tenant"
)

// fleets is a kind whose objects have their number of replicas at spec.<path>.
func (w *world) fleets(t *testing.T, path string) (manifest string) {
	t.Helper()
	group := w.namespace + ".example.com"
	w.Apply(t, fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: fleets.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {kind: Fleet, listKind: FleetList, plural: fleets, singular: fleet}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              replicas: {type: integer}
              size: {type: integer}
              plain: {type: integer}
              pool: {type: object, properties: {size: {type: integer}, port: {type: integer}, speed: {type: integer}}}
          status: {type: object, properties: {replicas: {type: integer}}}
    subresources: {scale: {specReplicasPath: .spec.%[2]s, statusReplicasPath: .status.replicas}}`, group, path))
	definition := cluster.Ref("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "fleets."+group)
	w.deleteAfter(t, definition)
	w.WaitFor(t, definition, cluster.Condition("Established", "True"))
	manifest = "apiVersion: " + group + "/v1\nkind: Fleet\nmetadata: {name: one}\nspec: {%s}\n"
	cluster.Eventually(t, func(ctx context.Context) error {
		_, err := w.target.Apply(ctx, w.object(t, fmt.Sprintf(manifest, "")), tenant.ApplyOptions{FieldManager: "probe", DryRun: true})
		return err
	})
	return manifest
}

// T-56: the number of replicas of a custom kind stays too, wherever its definition says that it is, and nothing else does.
func TestReplicasOfCustomKindsAreHandedOver(t *testing.T) {
	for name, tc := range map[string]struct {
		path      string
		with      string
		rendered  int64
		before    func(t *testing.T, w *world, with string)
		want      int64
		wantOwner string
	}{
		"at spec.replicas": {path: "replicas", with: "replicas: 3", rendered: 3, want: 3, wantOwner: ownership.HandoverManager + " Apply"},
		"elsewhere": {
			path: "pool.size", with: "pool: {size: 3, port: 3, speed: 4}", rendered: 3, want: 3, wantOwner: ownership.HandoverManager + " Apply",
		},
		"kubectl had, before the adoption": {
			path: "pool.size", with: "pool: {size: 3, speed: 4}", rendered: 3, want: 3, wantOwner: ownership.HandoverManager + " Apply",
			before: func(t *testing.T, w *world, with string) { w.updated(t, "kubectl-client-side-apply", with) },
		},
		"somebody had scaled": {
			path: "size", with: "size: 1", rendered: 1, want: 3, wantOwner: "autoscaler Update",
			before: func(t *testing.T, w *world, with string) {
				w.apply(t, with)
				patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":3}}`))
				if err := w.Client(t).SubResource("scale").Patch(t.Context(), w.object(t, with), patch, client.FieldOwner("autoscaler")); err != nil {
					t.Fatal(err)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			manifest := w.fleets(t, tc.path)
			with := fmt.Sprintf(manifest, tc.with)
			if tc.before == nil {
				w.apply(t, with)
			} else {
				tc.before(t, w, with)
			}
			without := fmt.Sprintf(manifest, "plain: 1")
			applied := w.apply(t, without)
			scale, err := w.target.Scale(t.Context(), applied.GroupVersionKind(), w.namespace, "one")
			if err != nil {
				t.Fatal(err)
			}
			if got, _, _ := unstructured.NestedInt64(scale.Object, "spec", "replicas"); got != tc.want {
				t.Errorf("%d replicas, want %d", got, tc.want)
			}
			for _, field := range []string{"port", "speed"} {
				if _, stays, _ := unstructured.NestedInt64(applied.Object, "spec", "pool", field); stays {
					t.Errorf("spec.pool.%s stays", field)
				}
			}
			others := slices.DeleteFunc(managers(applied), func(manager string) bool { return manager == w.ours() })
			if diff := cmp.Diff([]string{tc.wantOwner}, others); diff != "" {
				t.Errorf("other managers (-want +got):\n%s", diff)
			}
			if again := w.apply(t, without); again.GetGeneration() != applied.GetGeneration() {
				t.Error("the same apply changed something")
			}
			// Whoever renders the number again has it.
			w.apply(t, with)
			again, err := w.target.Scale(t.Context(), applied.GroupVersionKind(), w.namespace, "one")
			if err != nil {
				t.Fatal(err)
			}
			if got, _, _ := unstructured.NestedInt64(again.Object, "spec", "replicas"); got != tc.rendered {
				t.Errorf("%d replicas, want %d as rendered", got, tc.rendered)
			}
		})
	}
}

// An account that may not scale has nothing handed over: the number goes as any other field does.
func TestReplicasThatTheAccountMayNotScale(t *testing.T) {
	w := newWorld(t)
	manifest := w.fleets(t, "size")
	w.apply(t, fmt.Sprintf(manifest, "size: 3"))
	w.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: limited, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: limited, namespace: %[1]s}
rules: [{apiGroups: [%[1]s.example.com], resources: [fleets], verbs: [get, patch, create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: limited, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: limited}
subjects: [{kind: ServiceAccount, name: limited, namespace: %[1]s}]`, w.namespace))
	clients, err := tenant.New(tenant.Options{Config: w.Config})
	if err != nil {
		t.Fatal(err)
	}
	if w.target, err = clients.Target(t.Context(), tenant.Destination{}, tenant.Account{Namespace: w.namespace, Name: "limited"}); err != nil {
		t.Fatal(err)
	}
	fleet := w.object(t, fmt.Sprintf(manifest, ""))
	cluster.Eventually(t, func(ctx context.Context) error {
		_, err := w.target.Get(ctx, fleet.GroupVersionKind(), w.namespace, "one")
		return err
	})
	applied := w.apply(t, fmt.Sprintf(manifest, "plain: 1"))
	if size, stays, _ := unstructured.NestedInt64(applied.Object, "spec", "size"); stays {
		t.Errorf("spec.size is still %d", size)
	}
}
