package admission_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/e2e/cluster"
)

// keepsLabelled refuses to delete what says so, and everything if a rule does not see what ValidatingAdmissionPolicy shows.
const keepsLabelled = `
matchConstraints: {operations: [DELETE]}
validations:
- name: kept
  fieldPath: metadata.labels
  expression: oldObject.metadata.?labels.?keep.orValue('') != 'yes'
  message: take off the label keep first
- name: given
  expression: >-
    object == null && oldObject.metadata.name == request.name && oldObject.spec.stages.size() > 0
    && request.operation == 'DELETE'
  message: the old object is not given`

// registerDeletions has the API server ask about deletions of StageSets, or not any more, as docs/policies.md says.
func (i *installation) registerDeletions(t *testing.T, registered bool) {
	t.Helper()
	operations := `["CREATE", "UPDATE"]`
	if registered {
		operations = `["CREATE", "UPDATE", "DELETE"]`
	}
	patch := fmt.Sprintf(`[{"op": "replace", "path": "/webhooks/0/rules/0/operations", "value": %s}]`, operations)
	err := i.client.Patch(t.Context(), i.configuration(validating), client.RawPatch(types.JSONPatchType, []byte(patch)))
	if err != nil {
		t.Fatal(err)
	}
}

// mustCreate creates StageSets, which nothing is against.
func (i *installation) mustCreate(t *testing.T, objects ...*unstructured.Unstructured) {
	t.Helper()
	for _, object := range objects {
		if err := i.client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitKept waits until a StageSet may not be deleted: API servers learn of webhooks some time after they are written.
func (i *installation) awaitKept(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	cluster.Eventually(t, func(ctx context.Context) error {
		if err := i.client.Delete(ctx, object.DeepCopy(), client.DryRunAll); !apierrors.IsInvalid(err) {
			return fmt.Errorf("deleting %s: %v, want a refusal", object.GetName(), err)
		}
		return nil
	})
}

// P-28: deletions are sent to the webhook only where an installation registers them. A policy about them says in its status
// whether they are, from the moment when that changes; it then sees the old object, and decides.
func TestDeletionsAreDecidedWhereTheyAreRegistered(t *testing.T) {
	i := install(t)
	i.installWebhooks(t)
	r := i.start(t)
	policy := i.policy(t, "keep", keepsLabelled)
	notRegistered := condition(v1alpha1.ConditionEffective, metav1.ConditionFalse, v1alpha1.ReasonDeleteNotRegistered)
	kept := func(name string) *unstructured.Unstructured {
		object := i.stageSet(t, name, validSpec)
		object.SetLabels(map[string]string{"keep": "yes"})
		return object
	}

	i.status(t, policy, condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady), notRegistered)
	i.mustCreate(t, kept("first"))
	before := r.requests(t, "validate")
	if err := i.client.Delete(t.Context(), kept("first")); err != nil {
		t.Errorf("deleting while deletions are not registered: %v", err)
	}
	if got := r.requests(t, "validate") - before; got != 0 {
		t.Errorf("%d requests reached the webhook", got)
	}

	i.registerDeletions(t, true)
	i.status(t, policy, condition(v1alpha1.ConditionEffective, metav1.ConditionTrue, v1alpha1.ReasonMatches))
	i.mustCreate(t, kept("second"), i.stageSet(t, "third", validSpec))
	i.awaitKept(t, kept("second"))
	output, err := i.kubectl(t, kept("second"), "delete", "-f", "-")
	if want := "metadata.labels: " + policy.GetName() + "/kept: take off the label keep first"; err == nil ||
		!strings.Contains(output, want) || strings.Contains(output, "/given") {
		t.Errorf("kubectl says %s, want %q", output, want)
	}
	if err := i.client.Delete(t.Context(), i.stageSet(t, "third", validSpec)); err != nil {
		t.Errorf("deleting what nothing is against: %v", err)
	}
	all := i.stageSet(t, "", validSpec)
	if err := i.client.DeleteAllOf(t.Context(), all, client.InNamespace(i.tenant)); err == nil {
		t.Error("what may not be deleted is deleted with all others")
	}

	i.registerDeletions(t, false)
	i.status(t, policy, notRegistered)
	i.registerDeletions(t, true)
	i.status(t, policy, condition(v1alpha1.ConditionEffective, metav1.ConditionTrue, v1alpha1.ReasonMatches))
	i.awaitKept(t, kept("second"))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: i.tenant}}
	if err := i.client.Delete(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	i.WaitGone(t, namespace)
}
