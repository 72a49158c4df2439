package e2e

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// Drift is no release: what was released before is set right in every stage, whatever an earlier one is waited for.
func TestDriftIsCorrectedWhileAnEarlierStageIsNotHealthy(t *testing.T) {
	n := shared(t).tenant(t)
	revision := n.source(t, "app", map[string]string{
		"one/web.yaml": heldDeployment("web", "1"), "two/settings.yaml": configMap("settings", "1"),
	})
	n.stageSet(t, "app", "interval: 24h"+twoStages("app"))
	web := cluster.Ref("apps/v1", "Deployment", n.namespace, "web")
	n.wait(t, "app", phase("one", v1.StageVerifying))
	n.releasePods(t, web, "Available")
	n.waitReady(t, "app", "app", revision)
	if err := n.Client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(n.namespace)); err != nil {
		t.Fatal(err)
	}
	n.WaitFor(t, web, cluster.Condition("Available", "False"))

	mark := n.Audit(t)
	n.patch(t, n.configMap("settings"), `{"data":{"value":"theirs"}}`)
	n.passWaits(t, "app")
	n.wait(t, "app", phase("one", v1.StageVerifying), phase("two", v1.StageReady))
	n.hasValue(t, "settings", "1")
	if diff := cmp.Diff([]string{"patch configmaps/settings"}, n.written(t, mark, deployer)); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	n.releasePods(t, web, "Available")
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "True", v1.ReasonSucceeded))
}

// Once a release has written something new, the stages that it has not reached are left as they are, however they are.
func TestDriftWaitsForAReleaseThatHasBegun(t *testing.T) {
	n := shared(t).tenant(t)
	files := map[string]string{"one/web.yaml": deployment("web", "1"), "two/settings.yaml": configMap("settings", "1")}
	first := n.source(t, "app", files)
	n.stageSet(t, "app", "interval: 24h"+twoStages("app"))
	n.waitReady(t, "app", "app", first)

	files["one/web.yaml"] = heldDeployment("web", "2")
	second := n.source(t, "app", files)
	n.wait(t, "app", n.revision("lastAttemptedRevisions", "app", second), phase("one", v1.StageVerifying))
	mark := n.Audit(t)
	n.patch(t, n.configMap("settings"), `{"data":{"value":"theirs"}}`)
	n.passWaits(t, "app")
	n.passWaits(t, "app")
	n.hasValue(t, "settings", "theirs")
	n.noWriteOf(t, mark, "configmaps", "settings")
	n.releasePods(t, cluster.Ref("apps/v1", "Deployment", n.namespace, "web"), "Available")
	n.waitReady(t, "app", "app", second)
	n.hasValue(t, "settings", "1")
}

// A release that has written nothing yet keeps nothing from being set right: its stage two is held by stage one.
func TestDriftIsCorrectedBeforeAReleaseBegins(t *testing.T) {
	n := shared(t).tenant(t)
	gadget := n.gadgets(t)
	files := map[string]string{
		"one/gadget.yaml": gadget.manifest("first"), "two/settings.yaml": configMap("changed", "1"),
		"three/settings.yaml": configMap("settings", "1"),
	}
	first := n.source(t, "app", files)
	ref := gadget.ref(n.namespace, "first")
	n.stageSet(t, "app", "interval: 24h"+threeStages)
	n.condition(t, ref, "Ready", "True", "Wound", "it ticks")
	n.waitReady(t, "app", "app", first)

	n.condition(t, ref, "Ready", "False", "Loose", "it has to be wound")
	n.patch(t, n.configMap("settings"), `{"data":{"value":"theirs"}}`)
	files["two/settings.yaml"] = configMap("changed", "2")
	mark := n.Audit(t)
	second := n.source(t, "app", files)
	n.wait(t, "app", n.revision("lastAttemptedRevisions", "app", second), phase("one", v1.StageVerifying))
	n.passWaits(t, "app")
	if diff := cmp.Diff([]string{"patch configmaps/settings"}, n.written(t, mark, deployer)); diff != "" {
		t.Errorf("writes while stage one is not healthy (-want +got):\n%s", diff)
	}
	n.condition(t, ref, "Ready", "True", "Wound", "it ticks")
	n.waitReady(t, "app", "app", second)
}

// T-46: what was healthy when a later stage began to wait has to be so when that one is done, too.
func TestEarlierStageIsLookedAtAgain(t *testing.T) {
	n := shared(t).tenant(t)
	gadget := n.gadgets(t)
	revision := n.source(t, "app", map[string]string{
		"one/gadget.yaml": gadget.manifest("first"), "two/gadget.yaml": gadget.manifest("second"),
		"three/settings.yaml": configMap("settings", "1"),
	})
	first, second := gadget.ref(n.namespace, "first"), gadget.ref(n.namespace, "second")
	n.stageSet(t, "app", threeStages)
	n.condition(t, first, "Ready", "True", "Wound", "it ticks")
	n.condition(t, second, "Ready", "False", "Loose", "it has to be wound")
	n.wait(t, "app", phase("two", v1.StageVerifying), messageHas("it has to be wound"))

	n.condition(t, first, "Ready", "False", "Stopped", "it does not tick any more")
	n.condition(t, second, "Ready", "True", "Wound", "it ticks")
	n.wait(t, "app", phase("one", v1.StageVerifying), messageHas("it does not tick any more"))
	n.absent(t, n.configMap("settings"))
	n.condition(t, first, "Ready", "True", "Wound", "it ticks")
	n.waitReady(t, "app", "app", revision)
}
