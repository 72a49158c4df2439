package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// repeated holds when a request to apply a stage again was acted on.
func repeated(value string) cluster.Predicate {
	return func(set *unstructured.Unstructured) error {
		got, _, err := unstructured.NestedString(set.Object, "status", "lastHandledReconcileStage")
		if err != nil || got == value {
			return err
		}
		return fmt.Errorf("the last stage that was asked for and applied is %q, want %q", got, value)
	}
}

// One stage is applied again although nothing has changed: that one, once, and also if it has to wait for its turn.
func TestStageIsAppliedAgain(t *testing.T) {
	n := shared(t).tenant(t)
	revision := n.source(t, "app", map[string]string{
		"one/web.yaml":    documents(heldDeployment("web", "1"), configMap("first", "1")),
		"two/second.yaml": configMap("second", "1"),
	})
	n.stageSet(t, "app", "retryInterval: 1s"+twoStages("app"))
	repeat := func(value string) {
		t.Helper()
		n.patch(t, n.ref("app"), fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1.AnnotationReconcileStage, value))
	}
	n.wait(t, "app", phase("one", v1.StageVerifying))
	repeat("two@1") // whose turn has not come
	n.passWaits(t, "app")
	if got := n.wait(t, "app").Status.LastHandledReconcileStage; got != "" {
		t.Errorf("%q is said to be applied again", got)
	}
	n.releasePods(t, cluster.Ref("apps/v1", "Deployment", n.namespace, "web"), "Available")
	n.waitReady(t, "app", "app", revision)
	n.wait(t, "app", repeated("two@1"))

	mark := n.Audit(t)
	repeat("one@2")
	n.wait(t, "app", repeated("one@2"), cluster.Condition(v1.ConditionReady, "True", v1.ReasonSucceeded))
	n.request(t, "app", "again")
	n.wait(t, "app", handled("again"), cluster.Condition(v1.ConditionReady, "True", v1.ReasonSucceeded))
	got := n.written(t, mark, deployer)
	slices.Sort(got)
	if diff := cmp.Diff([]string{"patch configmaps/first", "patch deployments/web"}, got); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}

	repeat("three@3")
	n.wait(t, "app", repeated("three@3"))
	n.waitEvent(t, "app", "Warning", v1.ReasonInvalidSpec, `asks for stage "three", which is not in spec.stages`)
}

// Who looks at a StageSet sees what it ran, and what it could not.
func TestHistoryOfReleases(t *testing.T) {
	n := shared(t).tenant(t)
	first := n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	n.stageSet(t, "app", "retryInterval: 1s"+oneStage("app"))
	n.waitReady(t, "app", "app", first)
	broken := n.source(t, "app", map[string]string{"a.yaml": "kind: ConfigMap"})
	n.wait(t, "app", n.revision("lastAttemptedRevisions", "app", broken),
		cluster.Condition(v1.ConditionReady, "False", v1.ReasonBuildFailed))
	third := n.source(t, "app", map[string]string{"a.yaml": configMap("a", "3")})
	set := n.waitReady(t, "app", "app", third)
	var got []string
	for _, entry := range set.Status.History {
		got = append(got, fmt.Sprintf("%s %s", entry.Revisions[n.namespace+"/app"], entry.Result))
	}
	if diff := cmp.Diff([]string{third + " Succeeded", broken + " Failed", first + " Succeeded"}, got); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
}
