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

// numbered are files with one ConfigMap each, from one number to another.
func numbered(folder string, from, to int, value string) map[string]string {
	files := map[string]string{}
	for i := from; i <= to; i++ {
		files[fmt.Sprintf("%s/%02d.yaml", folder, i)] = configMap(fmt.Sprintf("c%02d", i), value)
	}
	return files
}

// I7, T-71: a folder that was renamed without the path deletes nothing and applies nothing, until somebody says that it is
// meant, for that revision.
func TestMassPruneNeedsToBeAllowed(t *testing.T) {
	n := shared(t).tenant(t)
	files := numbered("one", 1, 12, "1")
	files["two/settings.yaml"] = configMap("settings", "1")
	first := n.source(t, "app", files)
	n.stageSet(t, "app", twoStages("app"))
	n.waitReady(t, "app", "app", first)

	mark := n.Audit(t)
	files = numbered("one", 1, 5, "2")
	files["two/settings.yaml"] = configMap("settings", "2")
	second := n.source(t, "app", files)
	n.wait(t, "app", n.revision("lastAttemptedRevisions", "app", second),
		cluster.Condition(v1.ConditionStalled, "True", v1.ReasonPruneRefused))
	message := n.waitRefused(t, "app", v1.ReasonPruneRefused)
	want := "7 of the 12 objects in its inventory would be deleted: ConfigMap " + n.namespace + "/c06, "
	if !strings.Contains(message, want) {
		t.Errorf("message %q does not contain %q", message, want)
	}
	if !strings.Contains(message, "; still running ") {
		t.Errorf("message %q does not say what runs", message)
	}
	n.waitEvent(t, "app", "Warning", v1.ReasonPruneRefused, "7 of the 12")

	// Not even another stage is applied, and the annotation of another revision changes nothing.
	allow := func(revision string) {
		t.Helper()
		n.patch(t, n.ref("app"), fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1.AnnotationAllowMassPrune, revision))
	}
	allow(first)
	n.request(t, "app", "with the wrong revision")
	n.wait(t, "app", handled("with the wrong revision"), cluster.Condition(v1.ConditionReady, "False", v1.ReasonPruneRefused))
	if writes := n.written(t, mark, deployer); len(writes) > 0 {
		t.Errorf("the account wrote %v", writes)
	}

	allow(second) // which is enough to wake it
	n.waitReady(t, "app", "app", second)
	for i := 6; i <= 12; i++ {
		n.absent(t, n.configMap(fmt.Sprintf("c%02d", i)))
	}
	n.hasValue(t, "settings", "2")

	// The next revision needs an allowance of its own.
	third := n.source(t, "app", map[string]string{"one/README.md": "moved", "two/settings.yaml": configMap("settings", "3")})
	n.wait(t, "app", n.revision("lastAttemptedRevisions", "app", third), messageHas("stage one renders nothing at "+third),
		cluster.Condition(v1.ConditionReady, "False", v1.ReasonPruneRefused))
	n.hasValue(t, "settings", "2")
	n.hasValue(t, "c01", "2")
}

// What an allowed release is still deleting does not hold the next one.
func TestDeletionsOnTheirWayAreNoMassPrune(t *testing.T) {
	n := shared(t).tenant(t)
	first := n.source(t, "app", numbered(".", 1, 12, "1"))
	n.stageSet(t, "app", oneStage("app"))
	n.waitReady(t, "app", "app", first)
	for i := 2; i <= 12; i++ {
		n.hold(t, n.configMap(fmt.Sprintf("c%02d", i)))
	}
	second := n.source(t, "app", numbered(".", 1, 1, "2"))
	n.patch(t, n.ref("app"), fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1.AnnotationAllowMassPrune, second))
	n.wait(t, "app", n.revision("lastAttemptedRevisions", "app", second), messageHas("waits for the deletion of"))

	third := n.source(t, "app", numbered(".", 1, 1, "3"))
	n.wait(t, "app", n.revision("lastAttemptedRevisions", "app", third), messageHas("waits for the deletion of"))
	n.hasValue(t, "c01", "3")
	for i := 2; i <= 12; i++ {
		n.release(t, n.configMap(fmt.Sprintf("c%02d", i)))
	}
	n.waitReady(t, "app", "app", third)
	if diff := cmp.Diff([]string{"app as deployer: ConfigMap c01"}, n.inventory(t, "app")); diff != "" {
		t.Errorf("inventory (-want +got):\n%s", diff)
	}
}

// A stage that is taken out of spec is meant to go, and what moves does not go.
func TestMassPruneIsNotAboutMovesAndRemovedStages(t *testing.T) {
	n := shared(t).tenant(t)
	files := numbered("one", 1, 12, "1")
	files["two/settings.yaml"] = configMap("settings", "1")
	first := n.source(t, "app", files)
	n.stageSet(t, "app", twoStages("app"))
	n.waitReady(t, "app", "app", first)
	uid := n.uid(t, n.configMap("c01"))

	files = numbered("two", 1, 12, "1")
	files["one/settings.yaml"] = configMap("settings", "1")
	second := n.source(t, "app", files)
	n.waitReady(t, "app", "app", second)
	n.unchanged(t, n.configMap("c01"), uid)

	withoutTwo, _, _ := strings.Cut(twoStages("app"), "- {name: two")
	n.stageSet(t, "app", withoutTwo)
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "True", v1.ReasonSucceeded), messageHas("1 objects in 1 stages"))
	n.absent(t, n.configMap("c01"), n.configMap("c12"))
	if recorded := n.inventory(t, "app"); !slices.Equal(recorded, []string{"one as deployer: ConfigMap settings"}) {
		t.Errorf("inventory %v", recorded)
	}
}
