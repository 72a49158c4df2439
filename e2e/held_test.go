package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// What holds a newer release does not make what runs healthy: it is looked at, and nothing of it is written.
func TestHeldReleaseIsReadyOnlyWhileWhatRunsIsHealthy(t *testing.T) {
	n := shared(t).tenant(t)
	gadget := n.gadgets(t)
	revision := n.source(t, "app", map[string]string{
		"base/a.yaml": configMap("base", "1"), "app/gadget.yaml": gadget.manifest("first"),
	})
	ref := gadget.ref(n.namespace, "first")
	app := "interval: 24h" + dependent("app", "{name: base}") // which is looked at when it is asked for
	n.stageSet(t, "base", dependent("base"))
	n.stageSet(t, "app", app)
	ticks := func() { t.Helper(); n.condition(t, ref, "Ready", "True", "Wound", "it ticks") }
	ticks()
	n.waitReady(t, "app", "app", revision)
	mark := n.Audit(t)

	tokens := 0
	after := func(predicates ...cluster.Predicate) {
		t.Helper()
		tokens++
		token := fmt.Sprint(tokens)
		n.request(t, "app", token)
		n.wait(t, "app", append(predicates, handled(token))...)
	}
	looks := func(reason, held string) {
		t.Helper()
		after(cluster.Condition(v1.ConditionReady, "True", reason), messageHas(held+"; still running "))
		n.condition(t, ref, "Ready", "False", "Loose", "it has to be wound")
		after(cluster.Condition(v1.ConditionReady, "Unknown", v1.ReasonProgressing),
			messageHas("what runs is not healthy: Gadget."+gadget.group+" "+n.namespace+"/first: it has to be wound; held: "+held))
		n.condition(t, ref, "Stalled", "True", "Broken", "the spring is broken")
		after(cluster.Condition(v1.ConditionReady, "False", v1.ReasonHealthCheckFailed),
			messageHas("what runs has failed: Gadget."+gadget.group+" "+n.namespace+"/first: the spring is broken; held: "+held))
		ticks()
		after(cluster.Condition(v1.ConditionReady, "True", reason))
	}
	n.stageSet(t, "base", "suspend: true"+dependent("base"))
	looks(v1.ReasonDependencyNotReady, "StageSet "+n.namespace+"/base in spec.dependsOn is suspended")
	n.waitEvent(t, "app", "Warning", v1.ReasonHealthCheckFailed, "the spring is broken")
	n.stageSet(t, "app", "suspend: true\n"+app)
	looks(v1.ReasonSuspended, "spec.suspend is set: nothing is applied")

	// What somebody deleted stays so while the StageSet is suspended, and does not pass for healthy.
	if err := n.Client.Delete(t.Context(), ref.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	after(cluster.Condition(v1.ConditionReady, "Unknown", v1.ReasonProgressing), messageHas("/first: does not exist; held: "))
	if writes := n.written(t, mark, deployer); len(writes) > 0 {
		t.Errorf("it wrote %v", writes)
	}
}

// Who waits for another StageSet need not have its sources yet: the other may bring them.
func TestDependencyIsSaidBeforeAMissingSource(t *testing.T) {
	n := shared(t).tenant(t)
	revision := n.source(t, "app", map[string]string{"base/a.yaml": configMap("base", "1")})
	n.stageSet(t, "top", strings.ReplaceAll(dependent("base", "{name: base}"), "name: app}}", "name: brought}}"))
	n.wait(t, "top", cluster.Condition(v1.ConditionReady, "False", v1.ReasonDependencyNotReady), messageHas("does not exist"))
	n.stageSet(t, "base", dependent("base"))
	n.waitReady(t, "base", "app", revision)
	n.wait(t, "top", cluster.Condition(v1.ConditionReady, "False", v1.ReasonSourceNotFound))
}

// A restart does not make a release of one that has been applied: what others did to its later stages is set right, whatever
// an earlier one is waited for.
func TestDriftIsCorrectedAfterARestartWhileAnEarlierStageIsNotHealthy(t *testing.T) {
	s := setup(t)
	key := hashKey(t)
	reconciler := s.ownReconciler(t, key)
	n := s.tenant(t)
	files := map[string]string{"one/web.yaml": heldDeployment("web", "1"), "two/settings.yaml": configMap("settings", "1")}
	revision := n.source(t, "app", files)
	n.stageSet(t, "app", "interval: 24h"+twoStages("app"))
	web := cluster.Ref("apps/v1", "Deployment", n.namespace, "web")
	n.wait(t, "app", phase("one", v1.StageVerifying))
	n.releasePods(t, web, "Available")
	n.waitReady(t, "app", "app", revision)
	if err := n.Client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(n.namespace)); err != nil {
		t.Fatal(err)
	}
	n.WaitFor(t, web, cluster.Condition("Available", "False"))
	n.passWaits(t, "app")
	n.wait(t, "app", phase("one", v1.StageVerifying), phase("two", v1.StageReady))
	if err := reconciler.Stop(); err != nil {
		t.Fatal(err)
	}
	n.patch(t, n.configMap("settings"), `{"data":{"value":"theirs"}}`)
	mark := n.Audit(t)
	reconciler = s.ownReconciler(t, key)
	n.WaitFor(t, n.configMap("settings"), field("1", "data", "value"))

	// A release that has begun is one also after a restart.
	files["one/web.yaml"] = heldDeployment("web", "2")
	second := n.source(t, "app", files)
	n.wait(t, "app", n.revision("lastAttemptedRevisions", "app", second), phase("one", v1.StageVerifying), phase("two", v1.StagePending))
	if err := reconciler.Stop(); err != nil {
		t.Fatal(err)
	}
	n.patch(t, n.configMap("settings"), `{"data":{"value":"theirs"}}`)
	s.ownReconciler(t, key)
	n.passWaits(t, "app")
	n.hasValue(t, "settings", "theirs")
	if diff := cmp.Diff([]string{"patch configmaps/settings", "patch deployments/web"}, n.written(t, mark, deployer)); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// I7: what was written ahead may have been made, also if nobody is left who has seen it. That a release was killed is no
// reason to delete it in silence.
func TestMassPruneCountsWhatAKilledReleaseMayHaveMade(t *testing.T) {
	s := setup(t)
	lives := s.lives(t)
	n := s.tenant(t)
	lives.die(t, n, moment{write: "patch configmaps", nth: 9, stored: true}, func() {
		n.source(t, "app", numbered(".", 1, 12, "1"))
		n.stageSet(t, "app", "retryInterval: 1s"+oneStage("app"))
	})
	n.source(t, "app", map[string]string{"README.md": "moved"})
	mark := n.Audit(t)
	lives.begin()
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonPruneRefused),
		messageHas("12 of the 12 objects in its inventory would be deleted"))
	if deleted := n.deleted(t, mark, deployer); len(deleted) > 0 {
		t.Errorf("it deleted %v", deleted)
	}
}
