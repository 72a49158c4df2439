package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// data is what a ConfigMap of the tenant has.
func (n *tenant) data(t *testing.T, name string) map[string]string {
	t.Helper()
	data, _, err := unstructured.NestedStringMap(n.live(t, n.configMap(name)).Object, "data")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A field that kubectl had set goes when the object becomes a StageSet's, with what kubectl remembered of it.
func TestWhatKubectlHadSetGoes(t *testing.T) {
	n := shared(t).tenant(t)
	manifest := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {value: '1', old: '1'}\n"
	if output, err := n.kubectl(t, manifest, "apply", "-n", n.namespace, "-f", "-"); err != nil {
		t.Fatal(err, output)
	}
	uid := n.uid(t, n.configMap("a"))
	revision := n.source(t, "app", map[string]string{"app.yaml": configMap("a", "1")})
	n.stageSet(t, "app", oneStage("app"))
	n.waitReady(t, "app", "app", revision)
	if diff := cmp.Diff(map[string]string{"value": "1"}, n.data(t, "a")); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
	live := n.live(t, n.configMap("a"))
	if len(live.GetAnnotations()) > 0 || len(live.GetManagedFields()) != 1 {
		t.Errorf("annotations %v and managedFields %v are left", live.GetAnnotations(), live.GetManagedFields())
	}
	n.unchanged(t, n.configMap("a"), uid)
}

// T-68: a StageSet that is gone leaves no field behind on what another one takes over from it.
func TestStageSetInheritsFromOneThatIsGone(t *testing.T) {
	n := shared(t).tenant(t)
	both := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {value: '1', old: '1'}\n"
	first := n.source(t, "first", map[string]string{"app.yaml": both})
	n.stageSet(t, "first", oneStage("first")+"deletionPolicy: Orphan\n")
	n.waitReady(t, "first", "first", first)
	uid := n.uid(t, n.configMap("a"))
	n.delete(t, "first")
	n.gone(t, "first")

	second := n.source(t, "second", map[string]string{"app.yaml": configMap("a", "1")})
	n.stageSet(t, "second", oneStage("second"))
	n.waitReady(t, "second", "second", second)
	if diff := cmp.Diff(map[string]string{"value": "1"}, n.data(t, "a")); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
	managers := n.live(t, n.configMap("a")).GetManagedFields()
	if len(managers) != 1 || managers[0].Manager != v1.FieldManager(n.namespace, "second") {
		t.Errorf("managedFields are %v, want one entry of the second", managers)
	}
	n.unchanged(t, n.configMap("a"), uid)
}

// T-68: of two StageSets that have recorded the same new object before either could make it, the older makes it, whichever
// recorded it first. The younger says whose it is, and writes nothing else.
func TestOlderStageSetMakesWhatBothRender(t *testing.T) {
	for name, olderFirst := range map[string]bool{"the older records first": true, "the younger records first": false} {
		t.Run(name, func(t *testing.T) {
			n := shared(t).tenant(t)
			lift := n.refuseToMake(t)
			for _, name := range []string{"a", "b"} {
				revision := n.source(t, name, map[string]string{"app.yaml": configMap("of-"+name, "1")})
				n.stageSet(t, name, "retryInterval: 1s\n"+oneStage(name))
				n.waitReady(t, name, name, revision)
			}
			older, younger := n.byAge(t, "a", "b")
			order := []string{older, younger}
			if !olderFirst {
				order = []string{younger, older}
			}
			revisions := map[string]string{}
			for _, name := range order {
				revisions[name] = n.source(t, name, map[string]string{
					"app.yaml": documents(configMap("of-"+name, "2"), configMap("refused", name)),
				})
				n.wait(t, name, cluster.Condition(v1.ConditionReady, "False"),
					n.revision("lastAttemptedRevisions", name, revisions[name]))
			}
			refused := []cluster.Predicate{cluster.Condition(v1.ConditionReady, "False", v1.ReasonConflict), messageHas(fmt.Sprintf(
				"ConfigMap %[1]s/refused belongs to StageSet %[1]s/%[2]s: remove it from one of the two", n.namespace, older))}
			n.wait(t, younger, refused...)
			lift()
			n.waitReady(t, older, older, revisions[older])
			n.request(t, younger, "still")
			n.wait(t, younger, append(refused, handled("still"))...)
			n.hasValue(t, "refused", older)

			// What the younger recorded and never made is not its to delete.
			third := n.source(t, younger, map[string]string{"app.yaml": configMap("of-"+younger, "3")})
			n.waitReady(t, younger, younger, third)
			n.hasValue(t, "refused", older)
			if diff := cmp.Diff([]string{"app as deployer: ConfigMap of-" + younger}, n.inventory(t, younger)); diff != "" {
				t.Errorf("inventory of the younger (-want +got):\n%s", diff)
			}
		})
	}
}

// byAge orders two StageSets: by the second in which they were made, or else by UID.
func (n *tenant) byAge(t *testing.T, a, b string) (older, younger string) {
	t.Helper()
	one, two := n.live(t, n.ref(a)), n.live(t, n.ref(b))
	first, second := one.GetCreationTimestamp(), two.GetCreationTimestamp()
	if second.Before(&first) || first.Equal(&second) && two.GetUID() < one.GetUID() {
		return b, a
	}
	return a, b
}

// T-68: a StageSet that never had an object takes nothing with it when it goes, and neither does one that keeps what it had.
func TestDeletingEitherOfTwoStageSetsLeavesWhatOneKeeps(t *testing.T) {
	n := shared(t).tenant(t)
	first := n.source(t, "first", map[string]string{"app.yaml": configMap("common", "first")})
	n.stageSet(t, "first", "serviceAccountName: "+deployer+"\n"+
		"stages: [{name: app, prune: false, sourceRef: {kind: GitRepository, name: first}}]\n")
	n.waitReady(t, "first", "first", first)
	uid := n.uid(t, n.configMap("common"))
	n.source(t, "second", map[string]string{"app.yaml": configMap("common", "second")})
	n.stageSet(t, "second", oneStage("second"))
	n.waitRefused(t, "second", v1.ReasonConflict)
	for _, name := range []string{"second", "first"} {
		n.delete(t, name)
		n.gone(t, name)
		n.unchanged(t, n.configMap("common"), uid)
	}
	n.hasValue(t, "common", "first")
}

// T-56: a Deployment keeps its replicas when a release stops to say how many.
func TestReplicasStayWhenTheyAreNotRenderedAnyMore(t *testing.T) {
	n := shared(t).tenant(t)
	with := strings.Replace(deployment("web", "1"), "replicas: 1", "replicas: 3", 1)
	first := n.source(t, "app", map[string]string{"app.yaml": with})
	n.stageSet(t, "app", oneStage("app"))
	n.waitReady(t, "app", "app", first)
	second := n.source(t, "app", map[string]string{"app.yaml": strings.Replace(with, "  replicas: 3\n", "", 1)})
	n.waitReady(t, "app", "app", second)
	var web appsv1.Deployment
	n.get(t, n.namespace, "web", &web)
	if *web.Spec.Replicas != 3 {
		t.Errorf("%d replicas, want 3", *web.Spec.Replicas)
	}
	// What is nobody's is nobody's drift.
	n.patch(t, cluster.Ref("apps/v1", "Deployment", n.namespace, "web"), `{"spec":{"replicas":2}}`)
	n.pass(t, "app", "again")
	n.get(t, n.namespace, "web", &web)
	if *web.Spec.Replicas != 2 {
		t.Errorf("%d replicas after somebody scaled, want 2", *web.Spec.Replicas)
	}
}

// T-115: what a StageSet has applied is found with kubectl, by the labels that api.md promises, also where names are too
// long for a label.
func TestAppliedObjectsAreFoundWithKubectl(t *testing.T) {
	n := shared(t).tenant(t)
	long := strings.Repeat("long", 30)
	revision := n.source(t, "app", map[string]string{"app.yaml": documents(configMap("a", "1"), configMap("b", "1"))})
	n.stageSet(t, long, oneStage("app"))
	n.waitReady(t, long, "app", revision)
	n.Apply(t, strings.Replace(configMap("somebody-elses", "1"), "metadata: {", "metadata: {namespace: "+n.namespace+", ", 1))
	selector := fmt.Sprintf("%s=%s,%s=%s,%s=app",
		v1.LabelName, v1.LabelValue(long), v1.LabelNamespace, n.namespace, v1.LabelStage)
	output, err := n.kubectl(t, "", "get", "configmaps", "-n", n.namespace, "-l", selector, "-o", "name")
	if err != nil {
		t.Fatal(err, output)
	}
	if diff := cmp.Diff("configmap/a\nconfigmap/b\n", output); diff != "" {
		t.Errorf("kubectl finds (-want +got):\n%s", diff)
	}
	if got := n.live(t, n.configMap("a")).GetAnnotations()[v1.LabelName]; got != long {
		t.Errorf("the annotation %s is %q, want the whole name", v1.LabelName, got)
	}
}
