package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// dependent is YAML of the spec of a StageSet that applies a folder of the source app as deployer, after others.
func dependent(folder string, on ...string) string {
	return fmt.Sprintf(`
serviceAccountName: %s
retryInterval: 1s
dependsOn: [%s]
stages: [{name: app, path: %s, sourceRef: {kind: GitRepository, name: app}}]
`, deployer, strings.Join(on, ", "), folder)
}

// T-28: a cycle stops its members, who are told the way; everybody else of the same source goes on, and the members do once
// it is broken.
func TestCycleStopsItsMembersOnly(t *testing.T) {
	n := shared(t).tenant(t)
	files := func(value string) map[string]string {
		return map[string]string{
			"a/a.yaml": configMap("a", value), "b/b.yaml": configMap("b", value), "c/c.yaml": configMap("c", value),
		}
	}
	first := n.source(t, "app", files("1"))
	n.stageSet(t, "a", dependent("a"))
	n.stageSet(t, "b", dependent("b", "{name: a}"))
	n.stageSet(t, "c", dependent("c"))
	for _, name := range []string{"a", "b", "c"} {
		n.waitReady(t, name, "app", first)
	}
	n.stageSet(t, "a", dependent("a", "{name: b}"))
	n.wait(t, "a", cluster.Condition(v1.ConditionStalled, "True", v1.ReasonDependencyCycle))

	mark := n.Audit(t)
	second := n.source(t, "app", files("2"))
	n.waitReady(t, "c", "app", second)
	for name, way := range map[string]string{"a": "NS/a -> NS/b -> NS/a", "b": "NS/b -> NS/a -> NS/b"} {
		n.wait(t, name, cluster.Condition(v1.ConditionReady, "False", v1.ReasonDependencyCycle),
			messageHas(strings.ReplaceAll(way, "NS", n.namespace)+": remove one of these"), messageHas("; still running "))
	}
	if diff := cmp.Diff([]string{"patch configmaps/c"}, n.written(t, mark, deployer)); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}

	n.stageSet(t, "a", dependent("a"))
	n.waitReady(t, "a", "app", second)
	n.waitReady(t, "b", "app", second)
}

// Whether a StageSet of somebody else exists, and what it depends on, is nothing that dependsOn tells (T-13).
func TestDependencyOnAForeignStageSetTellsNothing(t *testing.T) {
	s := setup(t)
	s.ownReconciler(t, policyConfig(t, "rules: {no-cross-namespace-refs: Off}"))
	n, other := s.tenant(t), s.tenant(t)
	n.source(t, "app", map[string]string{"app/a.yaml": configMap("a", "1")})
	for _, name := range []string{"exists", "missing"} {
		n.stageSet(t, "on-"+name, dependent("app", "{namespace: "+other.namespace+", name: "+name+"}"))
	}
	// It even depends on who asks: a cycle that only its other member may see.
	other.stageSet(t, "exists", dependent("app", "{namespace: "+n.namespace+", name: on-exists}"))
	said := map[string]string{}
	for _, name := range []string{"exists", "missing"} {
		message := n.waitRefused(t, "on-"+name, v1.ReasonAccessDenied)
		said[name] = strings.ReplaceAll(message, name, "NAME")
		n.request(t, "on-"+name, "again")
		n.wait(t, "on-"+name, handled("again"), cluster.Condition(v1.ConditionReady, "False", v1.ReasonAccessDenied))
	}
	if diff := cmp.Diff(said["missing"], said["exists"]); diff != "" {
		t.Errorf("what is said of a StageSet that does not exist, and of one that does (-+):\n%s", diff)
	}

	// RBAC is what shows it.
	n.grant(t, other.namespace, deployer, "ClusterRole", "view")
	n.wait(t, "on-missing", messageHas("does not exist"),
		cluster.Condition(v1.ConditionReady, "False", v1.ReasonDependencyNotReady))
	n.wait(t, "on-exists", cluster.Condition(v1.ConditionReady, "False", v1.ReasonDependencyCycle))
}

// T-30: what decides is the state, not what a process has seen: after a restart the order is the same.
func TestOrderHoldsOverARestart(t *testing.T) {
	s := setup(t)
	reconciler := s.ownReconciler(t)
	n := s.tenant(t)
	files := func(value string) map[string]string {
		return map[string]string{"base/a.yaml": configMap("base", value), "top/b.yaml": configMap("top", value)}
	}
	first := n.source(t, "app", files("1"))
	// The first in the alphabet, and in the queue, is the one that has to wait.
	n.stageSet(t, "a-top", dependent("top", "{name: z-base}"))
	n.stageSet(t, "z-base", dependent("base"))
	n.waitReady(t, "a-top", "app", first)
	if err := reconciler.Stop(); err != nil {
		t.Fatal(err)
	}
	mark := n.Audit(t)
	second := n.source(t, "app", files("2"))
	s.ownReconciler(t)
	n.waitReady(t, "a-top", "app", second)
	if got := n.written(t, mark, deployer); !slices.Equal(got, []string{"patch configmaps/base", "patch configmaps/top"}) {
		t.Errorf("writes %v", got)
	}
}
