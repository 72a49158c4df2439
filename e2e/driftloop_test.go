package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// T-57: who sets a field again whenever it is corrected is named, and no longer fought in every pass.
func TestDriftLoopIsNamedAndLeft(t *testing.T) {
	n := shared(t).tenant(t)
	// A new revision asks for a pass, and changes nothing else.
	revisions := 0
	pass := func() {
		t.Helper()
		revisions++
		revision := n.source(t, "app", map[string]string{
			"app.yaml": configMap("contested", "ours"), "README.md": fmt.Sprint(revisions),
		})
		n.waitReady(t, "app", "app", revision)
	}
	fight := func() {
		t.Helper()
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"data":{"value":"theirs"}}`))
		if err := n.Client.Patch(t.Context(), n.configMap("contested"), patch, client.FieldOwner("hotfix")); err != nil {
			t.Fatal(err)
		}
	}
	revisions++
	first := n.source(t, "app", map[string]string{"app.yaml": configMap("contested", "ours"), "README.md": "1"})
	n.stageSet(t, "app", "interval: 24h"+oneStage("app"))
	n.waitReady(t, "app", "app", first)
	for range 2 {
		fight()
		pass()
		n.hasValue(t, "contested", "ours")
	}
	n.noEvent(t, "app", v1.EventDriftLoop)

	loop := "ConfigMap " + n.namespace + "/contested: field data.value is also set by manager hotfix"
	fight()
	pass()
	n.hasValue(t, "contested", "theirs")
	n.wait(t, "app", messageHas(loop))
	n.waitEvent(t, "app", "Warning", v1.EventDriftLoop, loop)
	// Who asks for it gets it corrected.
	n.pass(t, "app", "correct it")
	n.hasValue(t, "contested", "ours")
	// Once they leave it alone, it is forgotten.
	pass()
	set := n.wait(t, "app")
	want := "1 objects in 1 stages are applied and healthy at " + set.Status.Revision
	if diff := cmp.Diff(want, readyMessage(set)); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}

// T-57: what the cluster itself makes of an object is no drift, however often it is looked at.
func TestWhatTheClusterMakesOfAnObjectIsNoDrift(t *testing.T) {
	n := shared(t).tenant(t)
	policy := "e2e-lower-" + n.namespace
	n.Apply(t, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}]
  matchConditions: [{name: labelled, expression: "'tier' in object.metadata.?labels.orValue({})"}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: 'Object{metadata: Object.metadata{labels: {"tier": object.metadata.labels["tier"].lowerAscii()}}}'
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec:
  policyName: %[1]s
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[2]s}}}`, policy, n.namespace))
	for _, kind := range []string{"MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"} {
		n.deleteAfter(t, cluster.Ref("admissionregistration.k8s.io/v1", kind, "", policy))
	}
	labelled := n.configMap("labelled")
	labelled.SetLabels(map[string]string{"tier": "GOLD"})
	cluster.Eventually(t, func(ctx context.Context) error {
		probe := labelled.DeepCopy()
		if err := n.Client.Create(ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		return field("gold", "metadata", "labels", "tier")(probe)
	})
	revision := n.source(t, "app", map[string]string{
		"app.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: labelled, labels: {tier: GOLD}}\n",
	})
	n.stageSet(t, "app", "interval: 24h"+oneStage("app"))
	n.waitReady(t, "app", "app", revision)
	mark := n.Audit(t)
	for number := range 3 {
		n.patch(t, n.configMap("labelled"), fmt.Sprintf(`{"metadata":{"annotations":{"unrelated":"%d"}}}`, number))
		n.pass(t, "app", fmt.Sprint(number))
	}
	if diff := cmp.Diff([]string(nil), n.written(t, mark, deployer)); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	n.noEvent(t, "app", v1.EventDriftCorrected)
}
