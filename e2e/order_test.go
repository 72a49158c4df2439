package e2e

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// after is a ConfigMap that is applied after a Deployment of the same namespace.
func (n *tenant) after(name, deployment string) string {
	return strings.Replace(configMap(name, "1"), "metadata: {", "metadata: {annotations: {config.kubernetes.io/depends-on: "+
		"apps/namespaces/"+n.namespace+"/Deployment/"+deployment+"}, ", 1)
}

// An object that names another one in its annotation is applied when that one is healthy; what names nothing is not held up.
func TestObjectIsAppliedAfterWhatItDependsOn(t *testing.T) {
	n := shared(t).tenant(t)
	revision := n.source(t, "app", map[string]string{
		"app.yaml": documents(n.after("last", "web"), heldDeployment("web", "1"), configMap("first", "1")),
	})
	mark := n.Audit(t)
	n.stageSet(t, "app", oneStage("app"))
	n.wait(t, "app", phase("app", v1.StageApplying), messageHas("stage app waits for Deployment.apps "+n.namespace+"/web"))
	n.passWaits(t, "app")
	before := []string{"patch configmaps/first", "patch deployments/web"}
	if diff := cmp.Diff(before, n.written(t, mark, deployer)); diff != "" {
		t.Errorf("writes while the Deployment is not available (-want +got):\n%s", diff)
	}
	n.releasePods(t, cluster.Ref("apps/v1", "Deployment", n.namespace, "web"), "Available")
	n.waitReady(t, "app", "app", revision)
	if diff := cmp.Diff(append(before, "patch configmaps/last"), n.written(t, mark, deployer)); diff != "" {
		t.Errorf("writes once it is available (-want +got):\n%s", diff)
	}

	// What comes before a Deployment that is not healthy any more may be its cure: it does not wait.
	if err := n.Client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(n.namespace)); err != nil {
		t.Fatal(err)
	}
	web := cluster.Ref("apps/v1", "Deployment", n.namespace, "web")
	n.WaitFor(t, web, cluster.Condition("Available", "False"))
	mark = n.Audit(t)
	cure := n.source(t, "app", map[string]string{
		"app.yaml": documents(n.after("last", "web"), heldDeployment("web", "1"), configMap("first", "2"), n.after("new", "web")),
	})
	n.wait(t, "app", phase("app", v1.StageApplying), n.revision("lastAttemptedRevisions", "app", cure))
	n.passWaits(t, "app")
	if diff := cmp.Diff([]string{"patch configmaps/first"}, n.written(t, mark, deployer)); diff != "" {
		t.Errorf("writes while the Deployment is not available any more (-want +got):\n%s", diff)
	}
	n.releasePods(t, web, "Available")
	n.waitReady(t, "app", "app", cure)
}

// References that lead nowhere end a release before its first write, together with what the API server refuses.
func TestDependencyThatNobodyRendersIsRefused(t *testing.T) {
	n := shared(t).tenant(t)
	n.source(t, "app", map[string]string{
		"one/app.yaml": documents(n.after("a", "missing"), n.after("b", "late")),
		"two/app.yaml": documents(heldDeployment("late", "1"),
			"apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 70000}]}\n"),
	})
	mark := n.Audit(t)
	n.stageSet(t, "app", twoStages("app"))
	n.refusedWhole(t, "app", v1.ReasonBuildFailed,
		"stage one: ConfigMap "+n.namespace+"/a (one/app.yaml:1): its annotation config.kubernetes.io/depends-on names "+
			"Deployment.apps "+n.namespace+"/missing, which no stage renders",
		"stage one: ConfigMap "+n.namespace+"/b (one/app.yaml:6): its annotation config.kubernetes.io/depends-on names "+
			"Deployment.apps "+n.namespace+"/late, which only a later stage renders",
		"spec.ports[0].port: Invalid value: 70000")
	n.wroteNothing(t, mark)
}
