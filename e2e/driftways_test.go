package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// way is a way in which somebody changes what a StageSet has applied.
type way struct {
	manifest string
	ref      *unstructured.Unstructured
	drift    func(*testing.T, *unstructured.Unstructured)
	// restored holds again once it is corrected.
	restored cluster.Predicate
}

// driftWays are ways that a look at managedFields alone would miss, or would take for something else.
func (n *tenant) driftWays(gadget gadgetKind) map[string]way {
	settings := func(name string, drift func(*testing.T, *unstructured.Unstructured)) way {
		return way{
			manifest: configMap(name, "ours"), ref: n.configMap(name), drift: drift, restored: field("ours", "data", "value"),
		}
	}
	secret := cluster.Ref("v1", "Secret", n.namespace, "string-data")
	broken := gadget.ref(n.namespace, "gadget")
	return map[string]way{
		"a policy that rewrites what others update": settings("rewritten", func(t *testing.T, ref *unstructured.Unstructured) {
			n.rewriteOthers(t, ref.GetName())
			n.patch(t, ref, `{"metadata":{"annotations":{"unrelated":"change"}}}`)
		}),
		"an apply under the StageSet's own name": settings("in-our-name", func(t *testing.T, ref *unstructured.Unstructured) {
			object := ref.DeepCopy()
			object.Object["data"] = map[string]any{"value": "theirs", "more": "theirs"}
			n.applyAs(t, object, v1.FieldManager(n.namespace, "app"))
		}),
		"stringData of a Secret": {
			manifest: "apiVersion: v1\nkind: Secret\nmetadata: {name: string-data}\nstringData: {value: ours}\n",
			ref:      secret, restored: field("b3Vycw==", "data", "value"),
			drift: func(t *testing.T, ref *unstructured.Unstructured) {
				n.patch(t, ref, `{"stringData":{"value":"theirs"}}`)
			},
		},
		// As a backup would: the content is another, the entry says that it is ours.
		"an entry that somebody restored": settings("restored", func(t *testing.T, ref *unstructured.Unstructured) {
			entries := n.live(t, ref).GetManagedFields()
			n.patch(t, ref, `{"data":{"value":"theirs"}}`)
			live := n.live(t, ref)
			live.SetManagedFields(entries)
			if err := n.Client.Update(t.Context(), live); err != nil {
				t.Fatal(err)
			}
		}),
		"cleared managedFields": settings("cleared", func(t *testing.T, ref *unstructured.Unstructured) {
			n.patch(t, ref, `{"metadata":{"managedFields":[{}]},"data":{"value":"theirs"}}`)
		}),
		// Nothing of ours differs, but nobody would know any more what is ours.
		"managedFields cleared and nothing else": settings("cleared-only", func(t *testing.T, ref *unstructured.Unstructured) {
			n.patch(t, ref, `{"metadata":{"managedFields":[{}]}}`)
		}),
		"a label of ours that was removed": settings("unlabelled", func(t *testing.T, ref *unstructured.Unstructured) {
			n.patch(t, ref, `{"metadata":{"labels":{"`+v1.LabelName+`":null}},"data":{"value":"theirs"}}`)
		}),
		"another object of the name": settings("replaced", func(t *testing.T, ref *unstructured.Unstructured) {
			if err := n.Client.Delete(t.Context(), ref.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			n.applyIn(t, configMap(ref.GetName(), "theirs"))
		}),
		"a finalizer of ours that was removed": {
			manifest: strings.Replace(gadget.manifest("gadget"), "name: gadget", "name: gadget, finalizers: [example.com/ours]", 1),
			ref:      broken,
			drift: func(t *testing.T, ref *unstructured.Unstructured) {
				n.patch(t, ref, `{"metadata":{"finalizers":null}}`)
			},
			restored: func(live *unstructured.Unstructured) error {
				if len(live.GetFinalizers()) != 1 {
					return fmt.Errorf("finalizers are %v", live.GetFinalizers())
				}
				return nil
			},
		},
	}
}

// What others change in what was applied is set right, in whatever way they do it, and nothing else is written.
func TestDriftIsFoundInWhateverWayItCame(t *testing.T) {
	n := shared(t).tenant(t)
	gadget := n.gadgets(t)
	ways := n.driftWays(gadget)
	manifests := []string{configMap("untouched", "ours")}
	var want []string
	for _, way := range ways {
		manifests = append(manifests, way.manifest)
		resource := strings.ToLower(way.ref.GetKind()) + "s"
		want = append(want, "patch "+resource+"/"+way.ref.GetName())
	}
	revision := n.source(t, "app", map[string]string{"app.yaml": documents(manifests...)})
	n.stageSet(t, "app", "interval: 24h"+oneStage("app"))
	n.condition(t, gadget.ref(n.namespace, "gadget"), "Ready", "True", "Wound", "it ticks")
	n.freeAfter(t, gadget.ref(n.namespace, "gadget"))
	n.waitReady(t, "app", "app", revision)

	for _, way := range ways {
		way.drift(t, way.ref)
	}
	mark := n.Audit(t)
	n.pass(t, "app", "correct")
	got := n.written(t, mark, deployer)
	if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			live := n.live(t, way.ref)
			if err := way.restored(live); err != nil {
				t.Error(err)
			}
			if extra, found, _ := unstructured.NestedString(live.Object, "data", "more"); found {
				t.Errorf("data.more is still %q", extra)
			}
		})
		n.ownedBy(t, "app", map[string][]client.Object{"app": {way.ref.DeepCopy()}})
	}

	// From here on nothing is drift.
	mark = n.Audit(t)
	n.pass(t, "app", "idle")
	if writes := n.written(t, mark, deployer); len(writes) > 0 {
		t.Errorf("writes of an idle pass: %v", writes)
	}
}

// The generation of a PriorityClass is 1 for ever, whatever is changed in it.
func TestDriftIsFoundWhereTheGenerationTellsNothing(t *testing.T) {
	n := shared(t).tenant(t)
	n.allowEverywhere(t, `
- {apiGroups: [scheduling.k8s.io], resources: [priorityclasses], verbs: [get, list, create, patch, delete]}`)
	class := cluster.Ref("scheduling.k8s.io/v1", "PriorityClass", "", n.namespace)
	n.deleteAfter(t, class)
	revision := n.source(t, "app", map[string]string{"class.yaml": "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\n" +
		"metadata: {name: " + n.namespace + "}\nvalue: 1\ndescription: ours\n"})
	n.stageSet(t, "app", "interval: 24h"+oneStage("app"))
	n.waitReady(t, "app", "app", revision)
	n.patch(t, class, `{"description":"theirs"}`)
	if generation := n.live(t, class).GetGeneration(); generation != 1 {
		t.Fatalf("the generation is %d, so that this test shows nothing", generation)
	}
	n.pass(t, "app", "correct")
	n.WaitFor(t, class, field("ours", "description"))
	mark := n.Audit(t)
	n.pass(t, "app", "idle")
	if writes := n.written(t, mark, deployer); len(writes) > 0 {
		t.Errorf("writes of an idle pass: %v", writes)
	}
}

// rewriteOthers has a policy of the cluster's set the value of the ConfigMap whenever anybody but deployer updates it.
func (n *tenant) rewriteOthers(t *testing.T, name string) {
	t.Helper()
	policy := "e2e-rewrite-" + n.namespace
	n.Apply(t, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [configmaps], resourceNames: [%[3]s]}
  matchConditions: [{name: others, expression: "!request.userInfo.username.endsWith(':%[4]s')"}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{data: {"value": "theirs"}}'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec:
  policyName: %[1]s
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[2]s}}}`,
		policy, n.namespace, name, deployer))
	for _, kind := range []string{"MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"} {
		n.deleteAfter(t, cluster.Ref("admissionregistration.k8s.io/v1", kind, "", policy))
	}
	cluster.Eventually(t, func(ctx context.Context) error {
		probe := n.configMap(name)
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"probe":""}}}`))
		if err := n.Client.Patch(ctx, probe, patch, client.DryRunAll); err != nil {
			return err
		}
		return field("theirs", "data", "value")(probe)
	})
}

// freeAfter takes the finalizers off an object at the end of the test, so that its namespace can go.
func (n *tenant) freeAfter(t *testing.T, ref *unstructured.Unstructured) {
	t.Helper()
	t.Cleanup(func() {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		if err := n.Client.Patch(context.Background(), ref.DeepCopy(), patch); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
}

// What others write that is not the StageSet's is no drift: nothing is written, and nothing is said.
func TestWhatIsNoDriftIsLeftAlone(t *testing.T) {
	n := shared(t).tenant(t)
	gadget := n.gadgets(t)
	scaled := strings.Replace(deployment("scaled", "1"), "  replicas: 1\n", "", 1)
	service := "apiVersion: v1\nkind: Service\nmetadata: {name: service}\nspec: {selector: {app: web}, ports: [{port: 80}]}\n"
	revision := n.source(t, "app", map[string]string{"app.yaml": documents(
		scaled, service, gadget.manifest("status"),
		configMap("fields", "ours"), configMap("bumped", "ours"), configMap("same", "ours"),
	)})
	n.stageSet(t, "app", "interval: 24h"+oneStage("app"))
	status := gadget.ref(n.namespace, "status")
	n.condition(t, status, "Ready", "True", "Wound", "it ticks")
	n.waitReady(t, "app", "app", revision)

	ways := map[string]struct {
		ref    *unstructured.Unstructured
		change func(*unstructured.Unstructured)
		holds  cluster.Predicate
	}{
		"a status": {ref: status, holds: cluster.Condition("Ready", "True", "Loud"),
			change: func(*unstructured.Unstructured) { n.condition(t, status, "Ready", "True", "Loud", "it ticks louder") }},
		"replicas that the manifest does not have": {
			ref: cluster.Ref("apps/v1", "Deployment", n.namespace, "scaled"),
			change: func(ref *unstructured.Unstructured) {
				scale := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":2}}`))
				if err := n.Client.SubResource("scale").Patch(t.Context(), ref.DeepCopy(), scale); err != nil {
					t.Fatal(err)
				}
				n.WaitFor(t, ref, cluster.Condition("Available", "True"), number(2, "status", "readyReplicas"))
			},
			holds: number(2, "spec", "replicas"),
		},
		"a field that has a default": {ref: cluster.Ref("v1", "Service", n.namespace, "service"),
			change: func(ref *unstructured.Unstructured) { n.patch(t, ref, `{"spec":{"sessionAffinity":"ClientIP"}}`) },
			holds:  field("ClientIP", "spec", "sessionAffinity")},
		"fields of others": {ref: n.configMap("fields"), holds: field("theirs", "data", "more"),
			change: func(ref *unstructured.Unstructured) {
				n.patch(t, ref, `{"data":{"more":"theirs"},"metadata":{"labels":{"theirs":""},"annotations":{"theirs":""}}}`)
			}},
		"a write that ends where it began": {ref: n.configMap("bumped"), holds: field("ours", "data", "value"),
			change: func(ref *unstructured.Unstructured) {
				n.patch(t, ref, `{"data":{"value":"theirs"}}`)
				n.patch(t, ref, `{"data":{"value":"ours"}}`)
			}},
		"an apply of the same in another name": {ref: n.configMap("same"), holds: field("ours", "data", "value"),
			change: func(ref *unstructured.Unstructured) {
				object := ref.DeepCopy()
				object.Object["data"] = map[string]any{"value": "ours"}
				n.applyAs(t, object, "somebody")
			}},
	}
	for _, way := range ways {
		way.change(way.ref)
	}
	mark := n.Audit(t)
	n.pass(t, "app", "leave")
	if writes := n.written(t, mark, deployer); len(writes) > 0 {
		t.Errorf("writes of a pass without drift: %v", writes)
	}
	for name, way := range ways {
		if err := way.holds(n.live(t, way.ref)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// It was asked about once: what was seen then is what later passes compare with.
	mark = n.Audit(t)
	n.pass(t, "app", "idle")
	for _, event := range mark.Since(t, n.by(deployer)) {
		if event.Verb != "list" && event.Resource != "gitrepositories" {
			t.Errorf("request of an idle pass: %s", event)
		}
	}
	n.noEvent(t, "app", v1.EventDriftCorrected)
}

// number holds when a field of an object is the number.
func number(want int64, path ...string) cluster.Predicate {
	return func(object *unstructured.Unstructured) error {
		got, _, err := unstructured.NestedInt64(object.Object, path...)
		if err != nil || got == want {
			return err
		}
		return fmt.Errorf("%v is %d, want %d", path, got, want)
	}
}

// noEvent checks that a pass that has ended emitted no event about a StageSet with the reason. Events are written after it,
// and beside each other: first it waits for one that another StageSet gives rise to only now.
func (n *tenant) noEvent(t *testing.T, name, reason string) {
	t.Helper()
	later := "later-than-" + strings.ToLower(reason)
	n.stageSet(t, later, "suspend: true"+oneStage("missing"))
	n.waitEvent(t, later, "Normal", v1.ReasonSuspended, "")
	var events eventsv1.EventList
	if err := n.Client.List(t.Context(), &events, client.InNamespace(n.namespace)); err != nil {
		t.Fatal(err)
	}
	for _, event := range events.Items {
		if event.Regarding.Name == name && event.Reason == reason {
			t.Errorf("event %s %s: %s", event.Type, event.Reason, event.Note)
		}
	}
}

// What was corrected is said, with the fields and who had set them, and without a value.
func TestCorrectedDriftIsNamed(t *testing.T) {
	n := shared(t).tenant(t)
	revision := n.source(t, "app", map[string]string{"app.yaml": documents(
		deployment("web", "1"), configMap("gone", "1"),
		"apiVersion: v1\nkind: Secret\nmetadata: {name: password}\nstringData: {password: ours}\n",
	)})
	n.stageSet(t, "app", "interval: 24h"+oneStage("app"))
	n.waitReady(t, "app", "app", revision)

	if err := n.Client.Delete(t.Context(), n.configMap("gone")); err != nil {
		t.Fatal(err)
	}
	image := fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":%q},`+
		`"spec":{"template":{"spec":{"containers":[{"name":"app","image":"registry.invalid/app:theirs"}]}}}}`, n.namespace)
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON([]byte(image)); err != nil {
		t.Fatal(err)
	}
	n.applyAs(t, object, "hotfix")
	password := cluster.Ref("v1", "Secret", n.namespace, "password")
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"data":{"password":"Y2FuYXJ5"}}`))
	if err := n.Client.Patch(t.Context(), password, patch, client.FieldOwner("intruder")); err != nil {
		t.Fatal(err)
	}
	n.pass(t, "app", "correct")
	for _, text := range []string{
		"ConfigMap " + n.namespace + "/gone was deleted",
		"Deployment.apps " + n.namespace + `/web: spec.template.spec.containers[name="app"].image (set by hotfix)`,
		"Secret " + n.namespace + "/password: data.password (set by intruder)",
	} {
		n.waitEvent(t, "app", "Normal", v1.EventDriftCorrected, text)
	}
	for _, value := range []string{"Y2FuYXJ5", "canary", ":theirs"} {
		if log := n.log(); strings.Contains(log, value) {
			t.Errorf("the log has the value %s:\n%s", value, log)
		}
	}
}

// applyAs applies an object as the administrator in the name of a field manager.
func (n *tenant) applyAs(t *testing.T, object *unstructured.Unstructured, manager string) {
	t.Helper()
	err := n.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object),
		client.FieldOwner(manager), client.ForceOwnership)
	if err != nil {
		t.Fatal(err)
	}
}
