package e2e

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// configMap is a ConfigMap of the tenant.
func (n *tenant) configMap(name string) *unstructured.Unstructured {
	return cluster.Ref("v1", "ConfigMap", n.namespace, name)
}

// live is an object as it is now; the test fails if it does not exist.
func (n *tenant) live(t testing.TB, ref *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	live := ref.DeepCopy()
	if err := n.Client.Get(t.Context(), client.ObjectKeyFromObject(ref), live); err != nil {
		t.Fatalf("%s %s: %v", ref.GetKind(), ref.GetName(), err)
	}
	return live
}

// uid is the UID of an object, which must exist.
func (n *tenant) uid(t testing.TB, ref *unstructured.Unstructured) types.UID {
	t.Helper()
	return n.live(t, ref).GetUID()
}

// absent checks that none of the objects exists.
func (n *tenant) absent(t testing.TB, refs ...*unstructured.Unstructured) {
	t.Helper()
	for _, ref := range refs {
		err := n.Client.Get(t.Context(), client.ObjectKeyFromObject(ref), ref.DeepCopy())
		if !apierrors.IsNotFound(err) {
			t.Errorf("%s %s still exists (%v)", ref.GetKind(), ref.GetName(), err)
		}
	}
}

// unchanged checks that an object is the one with the UID, and not being deleted.
func (n *tenant) unchanged(t testing.TB, ref *unstructured.Unstructured, uid types.UID) {
	t.Helper()
	live := n.live(t, ref)
	if live.GetUID() != uid || live.GetDeletionTimestamp() != nil {
		t.Errorf("%s %s has UID %s and deletionTimestamp %v, want UID %s and none",
			ref.GetKind(), ref.GetName(), live.GetUID(), live.GetDeletionTimestamp(), uid)
	}
}

// inventory is what the inventories of a StageSet record, sorted: "stage as account: Kind name".
func (n *tenant) inventory(t testing.TB, stageSet string) []string {
	t.Helper()
	lines, err := n.recorded(t.Context(), stageSet)
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func (n *tenant) recorded(ctx context.Context, stageSet string) ([]string, error) {
	var list v1.StageInventoryList
	if err := n.Client.List(ctx, &list, client.InNamespace(n.namespace)); err != nil {
		return nil, err
	}
	var lines []string
	for _, record := range list.Items {
		if record.Spec.StageSet != stageSet {
			continue
		}
		for _, entry := range record.Spec.Entries {
			lines = append(lines, fmt.Sprintf("%s as %s: %s %s",
				record.Spec.Stage, record.Spec.Target.ServiceAccountName, entry.Kind, entry.Name))
		}
	}
	slices.Sort(lines)
	return lines, nil
}

// gone waits until a StageSet is gone, and checks that nothing is left of it: inventories.
func (n *tenant) gone(t testing.TB, stageSet string) {
	t.Helper()
	n.WaitGone(t, cluster.Ref(v1.GroupVersion.String(), "StageSet", n.namespace, stageSet))
	var list v1.StageInventoryList
	if err := n.Client.List(t.Context(), &list, client.InNamespace(n.namespace)); err != nil {
		t.Fatal(err)
	}
	for _, record := range list.Items {
		if record.Spec.StageSet == stageSet {
			t.Errorf("StageInventory %s is left (finalizers %v)", record.Name, record.Finalizers)
		}
	}
}

// delete deletes a StageSet and returns at once.
func (n *tenant) delete(t testing.TB, stageSet string, options ...client.DeleteOption) {
	t.Helper()
	ref := cluster.Ref(v1.GroupVersion.String(), "StageSet", n.namespace, stageSet)
	if err := n.Client.Delete(t.Context(), ref, options...); err != nil {
		t.Fatal(err)
	}
}

// patch merges JSON into an object.
func (n *tenant) patch(t testing.TB, ref *unstructured.Unstructured, json string) {
	t.Helper()
	if err := n.Client.Patch(t.Context(), ref.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(json))); err != nil {
		t.Fatalf("patching %s %s: %v", ref.GetKind(), ref.GetName(), err)
	}
}

// hold puts a finalizer on an object, so that deleting it does not end before release.
func (n *tenant) hold(t testing.TB, ref *unstructured.Unstructured) {
	t.Helper()
	n.patch(t, ref, `{"metadata":{"finalizers":["e2e.metio.wtf/hold"]}}`)
	t.Cleanup(func() { // a namespace of a test that failed must not hang
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if err := n.Client.Patch(context.Background(), ref.DeepCopy(), patch); client.IgnoreNotFound(err) != nil {
			t.Errorf("releasing %s %s: %v", ref.GetKind(), ref.GetName(), err)
		}
	})
}

// release takes the finalizer of hold away.
func (n *tenant) release(t testing.TB, ref *unstructured.Unstructured) {
	t.Helper()
	n.patch(t, ref, `{"metadata":{"finalizers":null}}`)
}

// beingDeleted holds when an object is being deleted.
func beingDeleted(object *unstructured.Unstructured) error {
	if object.GetDeletionTimestamp() == nil {
		return fmt.Errorf("%s %s is not being deleted", object.GetKind(), object.GetName())
	}
	return nil
}

// deleted is what an account has deleted since the mark, in order: "resource/name".
func (n *tenant) deleted(t *testing.T, mark cluster.AuditMark, account string) []string {
	t.Helper()
	var names []string
	for _, line := range n.written(t, mark, account) {
		if name, ok := strings.CutPrefix(line, "delete "); ok {
			names = append(names, name)
		}
	}
	return names
}

// noInventory waits until the tenant has no inventory.
func (n *tenant) noInventory(t testing.TB) {
	t.Helper()
	cluster.Eventually(t, func(ctx context.Context) error {
		var list v1.StageInventoryList
		if err := n.Client.List(ctx, &list, client.InNamespace(n.namespace)); err != nil {
			return err
		}
		for _, record := range list.Items {
			return fmt.Errorf("StageInventory %s is left (finalizers %v)", record.Name, record.Finalizers)
		}
		return nil
	})
}

// waitEventOnNamespace waits for an event about the tenant's Namespace whose note contains the text. An event about what
// has no namespace is in default.
func (n *tenant) waitEventOnNamespace(t testing.TB, kind, reason, text string) {
	t.Helper()
	cluster.Eventually(t, func(ctx context.Context) error {
		var events eventsv1.EventList
		if err := n.Client.List(ctx, &events, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return err
		}
		var seen []string
		for _, event := range events.Items {
			if event.Regarding.Kind != "Namespace" || event.Regarding.Name != n.namespace {
				continue
			}
			if event.Type == kind && event.Reason == reason && strings.Contains(event.Note, text) {
				return nil
			}
			seen = append(seen, fmt.Sprintf("%s %s: %s", event.Type, event.Reason, event.Note))
		}
		return fmt.Errorf("no event %s %s about %q on Namespace %s; there are:\n%s",
			kind, reason, text, n.namespace, strings.Join(seen, "\n"))
	})
}

// restriction is a rule of the cluster's own that holds in the namespace of a tenant.
type restriction struct {
	// operation is CREATE, UPDATE or DELETE.
	operation string
	// only and allow are CEL: requests of which the first is true pass only if the second is. says is CEL of what the others
	// are told; empty is refusal.
	only, allow, says string
	// probe makes a request that the rule refuses, as deployer, and leaves nothing behind if it is not refused.
	probe func(ctx context.Context, as client.Client) error
}

// refusal is what the API server says to whom a restriction refuses something.
const refusal = "e2e refuses this"

// restrict installs a restriction and waits until it is enforced. It returns what lifts it again.
func (n *tenant) restrict(t testing.TB, rule restriction) (lift func()) {
	t.Helper()
	name := "e2e-" + n.namespace
	n.Apply(t, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: [%[3]s], resources: ["*"]}]
  matchConditions: [{name: only, expression: %[4]q}]
  validations: [{expression: %[5]q, message: %[6]q, messageExpression: %[7]q}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec:
  policyName: %[1]s
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[2]s}}}`,
		name, n.namespace, rule.operation, rule.only, rule.allow, refusal, cmp.Or(rule.says, "'"+refusal+"'")))
	kinds := []string{"ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"}
	for _, kind := range kinds {
		n.deleteAfter(t, cluster.Ref("admissionregistration.k8s.io/v1", kind, "", name))
	}
	n.awaitRestriction(t, rule, true)
	return func() {
		t.Helper()
		for _, kind := range kinds {
			ref := cluster.Ref("admissionregistration.k8s.io/v1", kind, "", name)
			if err := n.Client.Delete(t.Context(), ref); err != nil {
				t.Fatal(err)
			}
		}
		n.awaitRestriction(t, rule, false)
	}
}

// awaitRestriction waits until a rule is enforced, or no longer.
func (n *tenant) awaitRestriction(t testing.TB, rule restriction, enforced bool) {
	t.Helper()
	as, err := client.New(n.TokenConfig(t, n.namespace, deployer), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, func(ctx context.Context) error {
		err := rule.probe(ctx, as)
		if refused := err != nil && strings.Contains(err.Error(), refusal); refused != enforced {
			return fmt.Errorf("the probe gives %w, want it refused: %t", err, enforced)
		}
		return nil
	})
}

// probeDelete would delete an object, without any precondition.
func probeDelete(object *unstructured.Unstructured) func(context.Context, client.Client) error {
	return func(ctx context.Context, as client.Client) error {
		return as.Delete(ctx, object.DeepCopy(), client.DryRunAll)
	}
}

// refuseToMake lets every dry-run of an object whose name begins with "refused" pass, and refuses to make it.
func (n *tenant) refuseToMake(t testing.TB) (lift func()) {
	t.Helper()
	return n.restrict(t, restriction{
		operation: "CREATE", only: "object.metadata.name.startsWith('refused') && !request.dryRun", allow: "false",
		probe: func(ctx context.Context, as client.Client) error {
			probe := n.configMap("refused-probe")
			if err := as.Create(ctx, probe); err != nil {
				return err
			}
			return as.Delete(ctx, probe)
		},
	})
}
