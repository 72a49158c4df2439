package e2e

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// What somebody else changes is set right by the next pass; what somebody else adds is left alone, and asked about once.
func TestDriftIsCorrectedAndNothingElseIsWritten(t *testing.T) {
	n := shared(t).tenant(t)
	revision := n.source(t, "app", map[string]string{
		"app.yaml": documents(configMap("drifts", "1"), configMap("annotated", "1"), deployment("web", "1")),
	})
	n.stageSet(t, "app", oneStage("app"))
	n.waitReady(t, "app", "app", revision)

	n.patch(t, n.configMap("drifts"), `{"data":{"value":"theirs"}}`)
	n.patch(t, n.configMap("annotated"), `{"metadata":{"annotations":{"somebody":"else"}}}`)
	n.patch(t, cluster.Ref("apps/v1", "Deployment", n.namespace, "web"), `{"spec":{"replicas":3},"metadata":{"labels":{"`+
		v1.LabelName+`":null}}}`)
	mark := n.Audit(t)
	n.pass(t, "app", "correct")
	if diff := cmp.Diff([]string{"patch configmaps/drifts", "patch deployments/web"}, n.written(t, mark, deployer)); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	n.WaitFor(t, n.configMap("drifts"), field("1", "data", "value"))
	n.WaitFor(t, cluster.Ref("apps/v1", "Deployment", n.namespace, "web"), field("app", "metadata", "labels", v1.LabelName))

	// From here on nothing is asked about any object: one LIST for each kind, and the source.
	n.pass(t, "app", "settle")
	mark = n.Audit(t)
	n.pass(t, "app", "idle")
	var requests []string
	for _, event := range mark.Since(t, n.by(deployer)) {
		requests = append(requests, fmt.Sprintf("%s %s/%s", event.Verb, event.Resource, event.Name))
	}
	want := []string{"get gitrepositories/app", "list configmaps/", "list deployments/"}
	if diff := cmp.Diff(want, requests); diff != "" {
		t.Errorf("requests of an idle pass (-want +got):\n%s", diff)
	}
}

// What somebody deleted is made again.
func TestDeletedObjectIsAppliedAgain(t *testing.T) {
	n := shared(t).tenant(t)
	revision := n.source(t, "app", map[string]string{"app.yaml": configMap("gone", "1")})
	n.stageSet(t, "app", oneStage("app"))
	n.waitReady(t, "app", "app", revision)
	if err := n.Client.Delete(t.Context(), n.configMap("gone")); err != nil {
		t.Fatal(err)
	}
	n.pass(t, "app", "again")
	n.WaitFor(t, n.configMap("gone"), field("1", "data", "value"))
}

// What somebody deletes, and something else holds, is waited for, and made again as soon as it is gone.
func TestObjectThatIsBeingDeletedIsMadeAgain(t *testing.T) {
	n := shared(t).tenant(t)
	revision := n.source(t, "app", map[string]string{"app.yaml": configMap("going", "1")})
	n.stageSet(t, "app", "interval: 24h"+oneStage("app"))
	n.waitReady(t, "app", "app", revision)
	uid := n.uid(t, n.configMap("going"))
	n.hold(t, n.configMap("going"))
	if err := n.Client.Delete(t.Context(), n.configMap("going")); err != nil {
		t.Fatal(err)
	}
	n.passWaits(t, "app")
	n.wait(t, "app", messageHas("stage app waits for ConfigMap "+n.namespace+"/going: is being deleted"))
	n.release(t, n.configMap("going"))
	n.waitReady(t, "app", "app", revision)
	if n.uid(t, n.configMap("going")) == uid {
		t.Error("it is the same object")
	}
}

// T-68: an object belongs to one StageSet; the other says whose it is and takes nothing.
func TestSecondOwnerOfAnObjectIsRefused(t *testing.T) {
	n := shared(t).tenant(t)
	first := n.source(t, "first", map[string]string{"app.yaml": configMap("common", "first")})
	n.stageSet(t, "first", oneStage("first"))
	n.waitReady(t, "first", "first", first)
	second := n.source(t, "second", map[string]string{"app.yaml": documents(configMap("common", "second"), configMap("own", "1"))})
	n.stageSet(t, "second", oneStage("second"))
	message := n.waitRefused(t, "second", v1.ReasonConflict)
	want := fmt.Sprintf("stage app: ConfigMap %[1]s/common (app.yaml:1): ConfigMap %[1]s/common belongs to StageSet %[1]s/first: "+
		"remove it from one of the two", n.namespace)
	if diff := cmp.Diff(want, message); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
	n.WaitFor(t, n.configMap("common"), field("first", "data", "value"))
	n.absent(t, n.configMap("own"))

	// Once the first lets go of it, the second takes it, and it stays the same object.
	before := n.uid(t, n.configMap("common"))
	n.patch(t, cluster.Ref(v1.GroupVersion.String(), "StageSet", n.namespace, "first"), `{"spec":{"deletionPolicy":"Orphan"}}`)
	if err := n.Client.Delete(t.Context(), cluster.Ref(v1.GroupVersion.String(), "StageSet", n.namespace, "first")); err != nil {
		t.Fatal(err)
	}
	n.WaitGone(t, cluster.Ref(v1.GroupVersion.String(), "StageSet", n.namespace, "first"))
	n.request(t, "second", "now")
	n.waitReady(t, "second", "second", second)
	n.WaitFor(t, n.configMap("common"), field("second", "data", "value"))
	n.unchanged(t, n.configMap("common"), before)
}

// What kubectl made is taken over, as Flux does.
func TestObjectOfKubectlIsTakenOver(t *testing.T) {
	n := shared(t).tenant(t)
	if output, err := n.kubectl(t, configMap("taken", "kubectl"), "apply", "-n", n.namespace, "-f", "-"); err != nil {
		t.Fatal(err, output)
	}
	before := n.uid(t, n.configMap("taken"))
	revision := n.source(t, "app", map[string]string{"app.yaml": configMap("taken", "git")})
	n.stageSet(t, "app", oneStage("app"))
	n.waitReady(t, "app", "app", revision)
	n.WaitFor(t, n.configMap("taken"), field("git", "data", "value"))
	n.unchanged(t, n.configMap("taken"), before)
}

// pass has the reconciler make a pass of a StageSet that ends Ready.
func (n *tenant) pass(t testing.TB, name, token string) {
	t.Helper()
	n.request(t, name, token)
	n.wait(t, name, cluster.Condition(v1.ConditionReady, "True", v1.ReasonSucceeded),
		field(token, "status", "lastHandledReconcileAt"))
}

// field holds when a string field of an object has the value.
func field(want string, path ...string) cluster.Predicate {
	return func(object *unstructured.Unstructured) error {
		got, _, err := unstructured.NestedString(object.Object, path...)
		if err != nil || got == want {
			return err
		}
		return fmt.Errorf("%v is %q, want %q", path, got, want)
	}
}
