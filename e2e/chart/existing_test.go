package chart_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/e2e/cluster"
)

// The commands of docs/migration.md lead from the existing stageset-controller, its chart, its CRDs and what it has stored, to
// releases that have adopted what it applied, and nothing of it is left.
func TestFromTheExistingControllerAsDocumented(t *testing.T) {
	withoutCRDs(t)
	c := cluster.Shared(t)
	sources, err := cluster.Binary("source-controller-crds")
	if err != nil {
		t.Fatal(err)
	}
	c.InstallCRDs(t, os.DirFS(sources))
	r := &release{Cluster: c, name: "stageset", namespace: "stageset-system", client: c.Client(t)}
	t.Cleanup(func() { r.leave(t) })
	r.existing(t, "install", "--create-namespace", "--wait")
	t.Cleanup(func() { r.forget(t) })
	n := r.tenant(t)
	app := n.existingStageSet(t, "app")
	revision := n.commit(t, "app", "1")
	n.existingObject(t, "app")
	n.existingObject(t, "left")
	n.existingInventory(t, app, "app", "left")
	adopted, left := n.live(t, "v1", "ConfigMap", "app"), n.live(t, "v1", "ConfigMap", "left")
	decrypts := n.existingStageSet(t, "decrypts")
	n.commit(t, "decrypts", "1")
	n.patch(t, decrypts, `{"spec": {"decryption": {"provider": "sops"}}}`)

	steps := scripts(t, "docs/migration.md")[7:]
	sh := newShell(t, c.Kubeconfig, valuesFile(t, fmt.Sprintf(processes, ports(t)...)))
	sh.run(t, "echo '{}' > values.yaml")
	if printed := sh.run(t, "! {\n"+steps[0].Text+"\n}"); !strings.Contains(printed, "spec.decryption") {
		t.Errorf("it is not said that there is no spec.decryption:\n%s", printed)
	}
	n.patch(t, decrypts, `{"spec": {"decryption": null}}`)
	sh.run(t, steps[0].Text)
	r.existing(t, "upgrade", "--set", "webhook=true")
	sh.run(t, steps[1].Text)
	sh.run(t, steps[2].Text)
	r.route(t)
	r.start(t, "admission")
	r.start(t, "reconciler")
	n.ready(t, app, revision)
	n.ready(t, decrypts, n.commit(t, "decrypts", "2")) // it can be written again, and is released
	n.isAdopted(t, adopted)
	if printed := sh.run(t, steps[3].Text); !strings.Contains(printed, "decrypts") {
		t.Errorf("decrypts is not in\n%s", printed)
	}
	if diff := cmp.Diff(n.namespace+"_left__ConfigMap\n", sh.run(t, steps[5].Text)); diff != "" {
		t.Errorf("what is not carried over (-want +got):\n%s", diff)
	}

	mark := r.Audit(t)
	sh.run(t, steps[4].Text)
	for _, event := range mark.Since(t, cluster.Writes) {
		if event.Resource == "jobs" || event.Resource == "stagesets" && strings.HasPrefix(event.Verb, "delete") {
			t.Errorf("the uninstallation has hooks: %s", event)
		}
	}
	r.WaitGone(t, cluster.Ref("apps/v1", "Deployment", r.namespace, "stageset-controller"))
	n.ready(t, app, n.commitMaps(t, "app", "2", "other"))
	n.WaitGone(t, adopted)
	n.delete(t, app)
	n.WaitGone(t, cluster.Ref("v1", "ConfigMap", n.namespace, "other"))
	if live := n.live(t, "v1", "ConfigMap", "left"); live.GetUID() != left.GetUID() {
		t.Error("what is not carried over was made anew")
	}
	n.delete(t, decrypts)
}

// existing installs or upgrades a stand-in for the chart of the existing stageset-controller.
func (r *release) existing(t *testing.T, command string, args ...string) {
	t.Helper()
	args = append([]string{command, "stageset-controller", "testdata/stageset-controller",
		"--namespace", r.namespace, "--kubeconfig", r.Kubeconfig}, args...)
	if _, err := helm(t, args...); err != nil {
		t.Fatal(err)
	}
}

// forget takes away what the commands of the document leave of the existing controller.
func (r *release) forget(t *testing.T) {
	t.Helper()
	ledgers := cluster.Ref("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "stageledgers.stages.metio.wtf")
	if err := r.client.Delete(uncancelled{t}.Context(), ledgers); err != nil {
		t.Error(err)
	}
	webhook := cluster.Ref("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", "stageset-controller-"+r.namespace)
	if err := client.IgnoreNotFound(r.client.Delete(uncancelled{t}.Context(), webhook)); err != nil {
		t.Error(err)
	}
}

// existingStageSet is one that the existing controller has released, as it has stored it.
func (n *tenant) existingStageSet(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	object := n.stageSet(name)
	object.SetFinalizers([]string{"stages.metio.wtf/finalizer"})
	if err := n.client.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	object.Object["status"] = map[string]any{
		"observedGeneration":   object.GetGeneration(),
		"lastAppliedRevisions": map[string]any{n.namespace + "/" + name: "main@sha1:of-the-existing-controller"},
		"stages": []any{map[string]any{
			"name": "all", "phase": "Pruning", "appliedRevision": "main@sha1:of-the-existing-controller",
			"entriesCount": int64(2), "shards": int64(1),
		}},
		"conditions": []any{map[string]any{
			"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded", "message": "released",
			"lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": object.GetGeneration(),
		}},
	}
	if err := n.client.Status().Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	return object
}

// existingObject is a ConfigMap that the existing controller has applied for StageSet app: with one label that is not
// rendered any more.
func (n *tenant) existingObject(t *testing.T, name string) {
	t.Helper()
	object := parse(t, fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata:
  name: %s
  namespace: %s
  labels: {stages.metio.wtf/name: app, stages.metio.wtf/namespace: %[2]s, stages.metio.wtf/stage: all, earlier: label}
data: {value: "1"}`, name, n.namespace))[0]
	apply := client.ApplyConfigurationFromUnstructured(object)
	if err := n.client.Apply(t.Context(), apply, client.FieldOwner("stageset-controller"), client.ForceOwnership); err != nil {
		t.Fatal(err)
	}
}

// existingInventory is what the existing controller has stored of ConfigMaps that it has applied.
func (n *tenant) existingInventory(t *testing.T, set *unstructured.Unstructured, names ...string) {
	t.Helper()
	object := cluster.Ref("stages.metio.wtf/v1", "StageInventory", n.namespace, set.GetName()+"-all-00-0123456789")
	object.SetLabels(map[string]string{
		"stages.metio.wtf/stage-set": set.GetName(), "stages.metio.wtf/stage": "all", "stages.metio.wtf/shard": "0",
	})
	owner := metav1.NewControllerRef(set, set.GroupVersionKind())
	object.SetOwnerReferences([]metav1.OwnerReference{*owner})
	var entries []any
	for _, name := range names {
		entries = append(entries, map[string]any{"id": n.namespace + "_" + name + "__ConfigMap", "v": "v1"})
	}
	object.Object["spec"] = map[string]any{"stagePosition": int64(0), "entries": entries}
	if err := n.client.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

// isAdopted checks that a ConfigMap is the same as before, and has nothing of the existing controller.
func (n *tenant) isAdopted(t *testing.T, before *unstructured.Unstructured) {
	t.Helper()
	live := n.live(t, "v1", "ConfigMap", before.GetName())
	if live.GetUID() != before.GetUID() {
		t.Errorf("ConfigMap %s was made anew", before.GetName())
	}
	if _, stays := live.GetLabels()["earlier"]; stays {
		t.Errorf("a label that only the existing controller had set stays: %v", live.GetLabels())
	}
	for _, entry := range live.GetManagedFields() {
		if entry.Manager == "stageset-controller" {
			t.Errorf("the existing controller still manages %s", entry.FieldsV1)
		}
	}
}

func (n *tenant) patch(t *testing.T, object *unstructured.Unstructured, patch string) {
	t.Helper()
	if err := n.client.Patch(t.Context(), object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}
