package e2e

import (
	"context"
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
	n.serve(t, kind, "v1")
	n.deleteAfter(t, kind.definitionRef())
	n.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: gadgets, namespace: %s}
rules: [{apiGroups: [%s], resources: [gadgets], verbs: ["*"]}]`, n.namespace, kind.group))
	n.grant(t, n.namespace, deployer, "Role", "gadgets")
	return kind
}

// serve defines the kind with these versions and no others.
func (n *tenant) serve(t testing.TB, kind gadgetKind, versions ...string) {
	t.Helper()
	n.Apply(t, cluster.CustomKind(kind.group, "Gadget", versions...))
	n.WaitFor(t, kind.definitionRef(), cluster.Condition("Established", "True"))
}

// drop leaves v1 as the only version of the kind, and waits until the object cannot be read in its own any more.
func (n *tenant) drop(t testing.TB, kind gadgetKind, old *unstructured.Unstructured) {
	t.Helper()
	n.serve(t, kind, "v1")
	cluster.Eventually(t, func(ctx context.Context) error {
		if n.Client.Get(ctx, client.ObjectKeyFromObject(old), old.DeepCopy()) == nil {
			return fmt.Errorf("%s is still served", old.GetAPIVersion())
		}
		return nil
	})
}

// definition is what a release brings that brings the kind itself.
func (k gadgetKind) definition() string { return cluster.CustomKind(k.group, "Gadget", "v1") }

func (k gadgetKind) definitionRef() *unstructured.Unstructured {
	return cluster.Ref("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "gadgets."+k.group)
}

func (k gadgetKind) manifest(name string) string {
	return fmt.Sprintf("apiVersion: %s/v1\nkind: Gadget\nmetadata: {name: %s}\nspec: {size: 1}\n", k.group, name)
}

// say waits for an object, and merges JSON into its status, as a controller would.
func (n *tenant) say(t testing.TB, ref *unstructured.Unstructured, status string) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":`+status+`}`))
	if err := n.Client.Status().Patch(t.Context(), n.WaitFor(t, ref), patch); err != nil {
		t.Fatal(err)
	}
}

func (k gadgetKind) ref(namespace, name string) *unstructured.Unstructured {
	return cluster.Ref(k.group+"/v1", "Gadget", namespace, name)
}
