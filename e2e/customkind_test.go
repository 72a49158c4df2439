package e2e

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/e2e/cluster"
)

// gadgetKind is the namespaced kind Gadget, with a status subresource, in a group of one test's own.
type gadgetKind struct{ group string }

// gadgets defines the kind in a group that is the tenant's, and lets the account deployer do everything with it.
func (n *tenant) gadgets(t testing.TB) gadgetKind {
	t.Helper()
	kind := gadgetKind{group: n.namespace + ".example.com"}
	n.Apply(t, kind.definition())
	n.WaitFor(t, kind.definitionRef(), cluster.Condition("Established", "True"))
	n.deleteAfter(t, kind.definitionRef())
	n.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: gadgets, namespace: %s}
rules: [{apiGroups: [%s], resources: [gadgets], verbs: ["*"]}]`, n.namespace, kind.group))
	n.grant(t, n.namespace, deployer, "Role", "gadgets")
	return kind
}

func (k gadgetKind) definition() string {
	return fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {kind: Gadget, listKind: GadgetList, plural: gadgets, singular: gadget}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, k.group)
}

func (k gadgetKind) definitionRef() *unstructured.Unstructured {
	return cluster.Ref("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "gadgets."+k.group)
}

func (k gadgetKind) manifest(name string) string {
	return fmt.Sprintf("apiVersion: %s/v1\nkind: Gadget\nmetadata: {name: %s}\nspec: {size: 1}\n", k.group, name)
}

// says waits for an object, and gives its status a condition, as a controller would.
func (n *tenant) says(t testing.TB, object *unstructured.Unstructured, condition string) {
	t.Helper()
	n.WaitFor(t, object)
	said := client.RawPatch(types.MergePatchType, []byte(`{"status":{"conditions":[`+condition+`]}}`))
	if err := n.Client.Status().Patch(t.Context(), object, said); err != nil {
		t.Fatal(err)
	}
}

func (k gadgetKind) ref(namespace, name string) *unstructured.Unstructured {
	return cluster.Ref(k.group+"/v1", "Gadget", namespace, name)
}
