package e2e

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// What an object names as what it depends on stays until the object is gone.
func TestWhatIsDependedOnIsDeletedLast(t *testing.T) {
	n := shared(t).tenant(t)
	dependent := strings.Replace(configMap("dependent", "1"), "{name: dependent}",
		"{name: dependent, annotations: {"+v1.AnnotationDependsOn+": /namespaces/"+n.namespace+"/ConfigMap/needed}}", 1)
	revision := n.source(t, "app", map[string]string{
		"one/kept.yaml": configMap("first", "1"), "two/app.yaml": documents(dependent, configMap("needed", "1"), configMap("plain", "1")),
	})
	n.stageSet(t, "app", twoStages("app"))
	n.waitReady(t, "app", "app", revision)
	needed := n.uid(t, n.configMap("needed"))
	n.hold(t, n.configMap("dependent"))
	mark := n.Audit(t)
	n.delete(t, "app")
	n.WaitFor(t, n.configMap("dependent"), beingDeleted)
	n.WaitGone(t, n.configMap("plain"))
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonTerminating), messageHas("ConfigMap "+n.namespace+"/dependent"))
	n.unchanged(t, n.configMap("needed"), needed)
	n.release(t, n.configMap("dependent"))
	n.gone(t, "app")
	deleted := n.deleted(t, mark, deployer)
	if diff := cmp.Diff([]string{"configmaps/needed", "configmaps/first"}, deleted[len(deleted)-2:]); diff != "" {
		t.Errorf("the last that were deleted, of %v (-want +got):\n%s", deleted, diff)
	}
}
