package e2e

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// asked asks for a pass of a StageSet and waits until it has ended with the reason, whatever Ready is.
func (n *tenant) asked(t *testing.T, name, token, reason string) {
	t.Helper()
	n.request(t, name, token)
	n.wait(t, name, handled(token), func(object *unstructured.Unstructured) error {
		if cluster.Condition(v1.ConditionReady, "True", reason)(object) == nil {
			return nil
		}
		return cluster.Condition(v1.ConditionReady, "False", reason)(object)
	})
}

// What runs is kept as it was applied while nothing newer can be: because it does not render, the API server refuses it, or
// its source is gone.
func TestLastReleaseIsMaintainedWhileNothingNewerCanBeApplied(t *testing.T) {
	n := shared(t).tenant(t)
	files := map[string]string{"one/a.yaml": configMap("first", "1"), "two/b.yaml": configMap("second", "1")}
	first := n.source(t, "app", files)
	n.stageSet(t, "app", "interval: 24h"+twoStages("app"))
	n.waitReady(t, "app", "app", first)

	drift := func() {
		t.Helper()
		n.patch(t, n.configMap("first"), `{"data":{"value":"theirs"}}`)
		if err := n.Client.Delete(t.Context(), n.configMap("second")); err != nil {
			t.Fatal(err)
		}
	}
	corrected := func(mark cluster.AuditMark) {
		t.Helper()
		n.hasValue(t, "first", "1")
		n.hasValue(t, "second", "1")
		want := []string{"patch configmaps/first", "patch configmaps/second"}
		if diff := cmp.Diff(want, n.written(t, mark, deployer)); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	}
	n.source(t, "app", map[string]string{"one/a.yaml": "}", "two/b.yaml": configMap("second", "2")})
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonBuildFailed))
	drift()
	mark := n.Audit(t)
	n.asked(t, "app", "does not render", v1.ReasonBuildFailed)
	corrected(mark)
	n.waitEvent(t, "app", "Normal", v1.EventDriftCorrected, "first: data.value")

	invalid := "apiVersion: v1\nkind: Service\nmetadata: {name: bad}\nspec: {ports: [{port: 0}]}\n"
	n.source(t, "app", map[string]string{
		"one/a.yaml": documents(configMap("first", "2"), invalid), "two/b.yaml": configMap("second", "2"),
	})
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonApplyFailed))
	drift()
	mark = n.Audit(t)
	n.asked(t, "app", "is refused", v1.ReasonApplyFailed)
	corrected(mark)

	repository := cluster.Ref("source.toolkit.fluxcd.io/v1", "GitRepository", n.namespace, "app")
	if err := n.Client.Delete(t.Context(), repository); err != nil {
		t.Fatal(err)
	}
	drift()
	mark = n.Audit(t)
	n.asked(t, "app", "source is gone", v1.ReasonSourceNotFound)
	corrected(mark)
	n.noEvent(t, "app", v1.EventDriftDetected)
}

// What spec no longer renders is not at hand: what others did to it is said, and left.
func TestDriftOfWhatIsNotAtHandIsSaid(t *testing.T) {
	n := shared(t).tenant(t)
	first := n.source(t, "app", map[string]string{
		"one/a.yaml": configMap("first", "1"), "two/b.yaml": configMap("second", "1"),
	})
	n.stageSet(t, "app", "interval: 24h"+twoStages("app"))
	n.waitReady(t, "app", "app", first)
	// Stage one now has more to it, which does not render; stage two is what it was.
	n.stageSet(t, "app", "interval: 24h"+`
serviceAccountName: `+deployer+`
stages:
- name: one
  path: one
  commonMetadata: {labels: {more: ""}}
  sourceRef: {kind: GitRepository, name: missing}
- {name: two, path: two, sourceRef: {kind: GitRepository, name: app}}
`)
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "True", v1.ReasonSourceNotFound))
	mark := n.Audit(t)
	n.patch(t, n.configMap("first"), `{"data":{"value":"theirs"}}`)
	n.patch(t, n.configMap("second"), `{"data":{"value":"theirs"}}`)
	n.asked(t, "app", "now", v1.ReasonSourceNotFound)
	n.hasValue(t, "first", "theirs")
	n.hasValue(t, "second", "1")
	if diff := cmp.Diff([]string{"patch configmaps/second"}, n.written(t, mark, deployer)); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	n.waitEvent(t, "app", "Warning", v1.EventDriftDetected, "cannot correct ConfigMap "+n.namespace+"/first was changed: "+
		"what was applied is not at hand while the condition Ready says SourceNotFound")
}

// I2: what the policies deny is not corrected either.
func TestDriftOfWhatIsDeniedIsLeft(t *testing.T) {
	s := setup(t)
	s.ownReconciler(t) // a new policy has everything looked at, also what other tests are about
	n := s.tenant(t)
	first := n.source(t, "app", map[string]string{"a.yaml": configMap("first", "1")})
	n.stageSet(t, "app", "interval: 24h"+oneStage("app"))
	n.waitReady(t, "app", "app", first)
	n.policy(t, "frozen", "target: Manifest\n"+
		"validations: [{name: frozen, expression: 'false', message: nothing is applied here}]\n")
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonPolicyViolation))
	mark := n.Audit(t)
	n.patch(t, n.configMap("first"), `{"data":{"value":"theirs"}}`)
	n.asked(t, "app", "now", v1.ReasonPolicyViolation)
	n.hasValue(t, "first", "theirs")
	if writes := n.written(t, mark, deployer); len(writes) > 0 {
		t.Errorf("it wrote %v", writes)
	}
	n.waitEvent(t, "app", "Warning", v1.EventDriftDetected, "what was applied is not at hand while the condition "+
		"Ready says PolicyViolation, and rendering it again ends in PolicyViolation")
}

// A restart forgets what was applied. Without its source, drift can only be said then; with it, all is as before.
func TestDriftIsSaidAfterARestartWithoutTheSource(t *testing.T) {
	s := setup(t)
	reconciler := s.ownReconciler(t)
	n := s.tenant(t)
	first := n.source(t, "app", map[string]string{"a.yaml": documents(configMap("first", "1"), configMap("gone", "1"))})
	n.stageSet(t, "app", "interval: 24h"+oneStage("app"))
	n.waitReady(t, "app", "app", first)
	if err := reconciler.Stop(); err != nil {
		t.Fatal(err)
	}
	repository := cluster.Ref("source.toolkit.fluxcd.io/v1", "GitRepository", n.namespace, "app")
	if err := n.Client.Delete(t.Context(), repository.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	if err := n.Client.Delete(t.Context(), n.configMap("gone")); err != nil {
		t.Fatal(err)
	}
	mark := n.Audit(t)
	startReconciler(t, s.Cluster, "127.0.0.1")
	n.waitEvent(t, "app", "Warning", v1.EventDriftDetected, "cannot correct ConfigMap "+n.namespace+"/gone was deleted: "+
		"what was applied is not at hand since the reconciler was restarted after it was applied")
	if writes := n.written(t, mark, deployer); len(writes) > 0 {
		t.Errorf("it wrote %v", writes)
	}
	n.source(t, "app", map[string]string{"a.yaml": documents(configMap("first", "1"), configMap("gone", "1"))})
	n.WaitFor(t, n.configMap("gone"), field("1", "data", "value"))
}
