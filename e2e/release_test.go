package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/ociregistry"
)

// T-46: the gate between stages is the health of all of stage one.
func TestCommitReachesTheStagesInOrder(t *testing.T) {
	n := shared(t).tenant(t)
	mark := n.Audit(t)
	repository := n.gitRepository(t, "app")
	first := repository.push(t, map[string]string{
		"one/web.yaml":      documents(heldDeployment("web", "1"), configMap("web", "1")),
		"two/settings.yaml": configMap("settings", "1"),
	})
	n.stageSet(t, "app", twoStages("app"))
	waiting := n.wait(t, "app", phase("one", v1.StageVerifying), phase("two", v1.StagePending),
		messageHas("stage one waits for Deployment.apps "+n.namespace+"/web"),
		cluster.Condition(v1.ConditionReconciling, "True", v1.ReasonProgressing))
	if waiting.Status.CurrentStage != "one" || waiting.Status.Revision != "" {
		t.Errorf("current stage %q, revision %q, want one and none", waiting.Status.CurrentStage, waiting.Status.Revision)
	}
	stageOne := []string{"patch configmaps/web", "patch deployments/web"}
	n.passWaits(t, "app")
	if diff := cmp.Diff(stageOne, n.written(t, mark, deployer)); diff != "" {
		t.Errorf("writes while the Deployment is not available (-want +got):\n%s", diff)
	}

	web := cluster.Ref("apps/v1", "Deployment", n.namespace, "web")
	n.releasePods(t, web, "Available")
	n.waitReady(t, "app", "app", first)
	if diff := cmp.Diff(append(stageOne, "patch configmaps/settings"), n.written(t, mark, deployer)); diff != "" {
		t.Errorf("writes once it is available (-want +got):\n%s", diff)
	}
	n.ownedBy(t, "app", map[string][]client.Object{
		"one": {web, cluster.Ref("v1", "ConfigMap", n.namespace, "web")},
		"two": {cluster.Ref("v1", "ConfigMap", n.namespace, "settings")},
	})
	checkOwnRequests(t, n.suite)
}

// passWaits has the reconciler make a whole pass of a StageSet that waits, and go on waiting.
func (n *tenant) passWaits(t *testing.T, name string) {
	t.Helper()
	token := metav1.Now().String()
	n.request(t, name, token)
	n.wait(t, name, handled(token), cluster.Condition(v1.ConditionReady, "Unknown", v1.ReasonProgressing))
}

// written is what an account of the tenant has written since the mark, in order.
func (n *tenant) written(t *testing.T, mark cluster.AuditMark, account string) []string {
	t.Helper()
	var lines []string
	for _, event := range mark.Since(t, n.by(account), cluster.Writes) {
		lines = append(lines, fmt.Sprintf("%s %s/%s", event.Verb, event.Resource, event.Name))
	}
	return lines
}

// manages is true if managedFields of an object have an Apply entry of the StageSet.
func (n *tenant) manages(stageSet string, object client.Object) bool {
	return slices.ContainsFunc(object.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == v1.FieldManager(n.namespace, stageSet) && entry.Operation == metav1.ManagedFieldsOperationApply
	})
}

// ownedBy checks, of each object by stage, that the StageSet's field manager applied it, and that its labels say so.
func (n *tenant) ownedBy(t *testing.T, name string, stages map[string][]client.Object) {
	t.Helper()
	for stage, objects := range stages {
		for _, object := range objects {
			if err := n.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
				t.Fatal(err)
			}
			if !n.manages(name, object) {
				t.Errorf("%s: no Apply entry of the StageSet in %+v", object.GetName(), object.GetManagedFields())
			}
			want := map[string]string{v1.LabelName: name, v1.LabelNamespace: n.namespace, v1.LabelStage: stage}
			if diff := cmp.Diff(want, object.GetLabels()); diff != "" {
				t.Errorf("labels of %s (-want +got):\n%s", object.GetName(), diff)
			}
		}
	}
}

// A second commit goes through both stages. T-39, T-77: a third that arrives while stage one waits for the second begins
// at stage one at once, and nothing of the second ever reaches stage two.
func TestNewRevisionStartsOverWhileAStageWaits(t *testing.T) {
	n := shared(t).tenant(t)
	repository := n.gitRepository(t, "app")
	commit := func(web, settings string) string {
		return repository.push(t, map[string]string{"one/web.yaml": web, "two/settings.yaml": configMap("settings", settings)})
	}
	first := commit(deployment("web", "1"), "1")
	n.stageSet(t, "app", twoStages("app"))
	ready := n.waitReady(t, "app", "app", first)
	if want := first[:len("main@sha1:")+8]; ready.Status.Revision != want {
		t.Errorf("status.revision is %q, want %q", ready.Status.Revision, want)
	}

	mark := n.Audit(t)
	second := commit(heldDeployment("web", "2"), "2")
	held := n.wait(t, "app", n.revision("lastAttemptedRevisions", "app", second), phase("one", v1.StageVerifying))
	if diff := cmp.Diff(map[string]string{n.namespace + "/app": first}, held.Status.LastAppliedRevisions); diff != "" {
		t.Errorf("lastAppliedRevisions while stage one waits (-want +got):\n%s", diff)
	}
	third := commit(deployment("web", "3"), "3")
	done := n.waitReady(t, "app", "app", third)
	for _, stage := range done.Status.Stages {
		if stage.Phase != v1.StageReady || stage.Revision != third || stage.ReadyAt == nil {
			t.Errorf("stage %s is %+v, want it Ready at %s", stage.Name, stage, third)
		}
	}
	writes := []string{"patch deployments/web", "patch deployments/web", "patch configmaps/settings"}
	if diff := cmp.Diff(writes, n.written(t, mark, deployer)); diff != "" {
		t.Errorf("writes of the second and third revision (-want +got):\n%s", diff)
	}
	n.hasValue(t, "settings", "3")
}

// hasValue checks the value of a configMap.
func (n *tenant) hasValue(t *testing.T, name, want string) {
	t.Helper()
	var live corev1.ConfigMap
	if err := n.Client.Get(t.Context(), client.ObjectKey{Namespace: n.namespace, Name: name}, &live); err != nil {
		t.Fatal(err)
	}
	if got := live.Data["value"]; got != want {
		t.Errorf("ConfigMap %s has value %q, want %q", name, got, want)
	}
}

// T-46: what counts is the whole stage, also what a revision does not change.
func TestUnchangedStageThatIsNotHealthyHoldsTheNext(t *testing.T) {
	n := shared(t).tenant(t)
	files := map[string]string{"one/web.yaml": heldDeployment("web", "1"), "two/settings.yaml": configMap("settings", "1")}
	first := n.source(t, "app", files)
	n.stageSet(t, "app", twoStages("app"))
	n.wait(t, "app", phase("one", v1.StageVerifying))
	web := cluster.Ref("apps/v1", "Deployment", n.namespace, "web")
	n.releasePods(t, web, "Available")
	n.waitReady(t, "app", "app", first)
	pods := &corev1.Pod{}
	if err := n.Client.DeleteAllOf(t.Context(), pods, client.InNamespace(n.namespace)); err != nil {
		t.Fatal(err)
	}
	n.WaitFor(t, web, cluster.Condition("Available", "False"))

	mark := n.Audit(t)
	files["two/settings.yaml"] = configMap("settings", "2")
	second := n.source(t, "app", files)
	n.wait(t, "app", n.revision("lastAttemptedRevisions", "app", second), phase("one", v1.StageVerifying),
		messageHas("Deployment.apps "+n.namespace+"/web"))
	n.passWaits(t, "app")
	if writes := n.written(t, mark, deployer); len(writes) > 0 {
		t.Errorf("stage two was written while stage one is not healthy: %v", writes)
	}
	n.releasePods(t, web, "Available")
	n.waitReady(t, "app", "app", second)
	n.hasValue(t, "settings", "2")
}

func TestArtifactOfAnOCIRegistryIsReleased(t *testing.T) {
	n := shared(t).tenant(t)
	n.sourceController(t)
	registry := ociregistry.New(t)
	digest := registry.MustPush(t, "team/app", "v1", map[string]string{
		"one/settings.yaml": configMap("first", "1"), "two/settings.yaml": configMap("second", "1"),
	})
	n.Apply(t, objectYAML(t, "source.toolkit.fluxcd.io/v1", "OCIRepository", n.namespace, "app",
		fmt.Sprintf("{url: %q, interval: 1h, insecure: true, ref: {tag: v1}}", registry.URL("team/app"))))
	n.stageSet(t, "app", `
serviceAccountName: `+deployer+`
stages:
- {name: one, path: one, sourceRef: {kind: OCIRepository, name: app}}
- {name: two, path: two, sourceRef: {kind: OCIRepository, name: app}}
`)
	n.waitReady(t, "app", "app", "v1@"+digest)
	n.hasValue(t, "first", "1")
	n.hasValue(t, "second", "1")
}
