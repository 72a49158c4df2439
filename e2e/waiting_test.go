package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// T-29: a dependency counts when it is Ready at its current generation, and at the revision of a source that both use.
func TestDependencyIsWaitedFor(t *testing.T) {
	n := shared(t).tenant(t)
	web := cluster.Ref("apps/v1", "Deployment", n.namespace, "web")
	first := n.source(t, "app", map[string]string{
		"base/web.yaml": heldDeployment("web", "1"), "top/settings.yaml": configMap("settings", "1"),
	})
	base := func(version string) string {
		return `
serviceAccountName: ` + deployer + `
stages:
- name: base
  path: base
  sourceRef: {kind: GitRepository, name: app}
  commonMetadata: {annotations: {version: "` + version + `"}}
`
	}
	mark := n.Audit(t)
	n.stageSet(t, "top", `
serviceAccountName: `+deployer+`
dependsOn: [{name: base}]
stages: [{name: top, path: top, sourceRef: {kind: GitRepository, name: app}}]
`)
	name := "StageSet " + n.namespace + "/base in spec.dependsOn "
	waits := func(message string) {
		t.Helper()
		n.wait(t, "top", cluster.Condition(v1.ConditionReady, "False", v1.ReasonDependencyNotReady), messageHas(name+message))
	}
	waits("does not exist")
	n.stageSet(t, "base", base("1"))
	waits("is not Ready (Progressing)")
	n.noWriteOf(t, mark, "configmaps", "settings")
	n.releasePods(t, web, "Available")
	n.waitReady(t, "base", "app", first)
	// A watch wakes it: its own pause is thirty seconds.
	began := time.Now()
	n.waitReady(t, "top", "app", first)
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it became Ready %s after its dependency", took)
	}

	// The same source at a new revision, and a new spec of the dependency, at the same moment.
	mark = n.Audit(t)
	second := n.source(t, "app", map[string]string{
		"base/web.yaml": heldDeployment("web", "2"), "top/settings.yaml": configMap("settings", "2"),
	})
	n.stageSet(t, "base", base("2"))
	held := n.wait(t, "top", cluster.Condition(v1.ConditionReady, "True", v1.ReasonDependencyNotReady))
	if !strings.HasSuffix(readyMessage(held), "; still running "+held.Status.Revision) {
		t.Errorf("the message does not say what runs: %s", readyMessage(held))
	}
	n.wait(t, "base", n.revision("lastAttemptedRevisions", "app", second), phase("base", v1.StageVerifying))
	n.noWriteOf(t, mark, "configmaps", "settings")
	n.releasePods(t, web, "Available")
	n.waitReady(t, "top", "app", second)
}

// noWriteOf checks that an object of the tenant was not written since the mark by its account.
func (n *tenant) noWriteOf(t *testing.T, mark cluster.AuditMark, resource, name string) {
	t.Helper()
	events := mark.Since(t, n.by(deployer), cluster.Writes, func(e cluster.AuditEvent) bool {
		return e.Resource == resource && e.Name == name
	})
	if len(events) > 0 {
		t.Errorf("%s %s was written: %v", resource, name, events)
	}
}

func TestSuspendHoldsEverythingAndResumes(t *testing.T) {
	n := shared(t).tenant(t)
	first := n.source(t, "app", map[string]string{"settings.yaml": configMap("settings", "1")})
	n.stageSet(t, "app", oneStage("app"))
	n.waitReady(t, "app", "app", first)
	n.stageSet(t, "app", "suspend: true"+oneStage("app"))
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "True", v1.ReasonSuspended))

	mark := n.Audit(t)
	second := n.source(t, "app", map[string]string{"settings.yaml": configMap("settings", "2")})
	n.request(t, "app", "while suspended")
	n.wait(t, "app", handled("while suspended"), cluster.Condition(v1.ConditionReady, "True", v1.ReasonSuspended))
	if writes := n.written(t, mark, deployer); len(writes) > 0 {
		t.Errorf("it wrote %v while suspended", writes)
	}
	n.hasValue(t, "settings", "1")
	n.waitEvent(t, "app", "Normal", v1.ReasonSuspended, "nothing is applied")

	n.stageSet(t, "app", oneStage("app"))
	n.waitReady(t, "app", "app", second)
	n.hasValue(t, "settings", "2")
}

// T-39: nobody has to wait for the end of a wait.
func TestSuspensionAndDeletionEndTheWait(t *testing.T) {
	n := shared(t).tenant(t)
	n.source(t, "app", map[string]string{
		"one/web.yaml": heldDeployment("web", "1"), "two/settings.yaml": configMap("settings", "1"),
	})
	spec := "timeout: 24h" + twoStages("app")
	n.stageSet(t, "app", spec)
	n.wait(t, "app", phase("one", v1.StageVerifying))
	n.stageSet(t, "app", "suspend: true\n"+spec)
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonSuspended))
	n.stageSet(t, "app", spec)
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "Unknown", v1.ReasonProgressing), phase("one", v1.StageVerifying))

	set := cluster.Ref(v1.GroupVersion.String(), "StageSet", n.namespace, "app")
	if err := n.Client.Delete(t.Context(), set.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	n.WaitGone(t, set)
	n.WaitGone(t, cluster.Ref("apps/v1", "Deployment", n.namespace, "web"))
}

func TestRequestedPassLooksAtOnce(t *testing.T) {
	n := shared(t).tenant(t)
	revision := n.source(t, "app", map[string]string{"settings.yaml": configMap("settings", "1")})
	n.stageSet(t, "app", "interval: 24h"+oneStage("app"))
	n.waitReady(t, "app", "app", revision)
	lost := cluster.Ref("v1", "ConfigMap", n.namespace, "settings")
	if err := n.Client.Delete(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	n.request(t, "app", "now")
	n.wait(t, "app", handled("now"), cluster.Condition(v1.ConditionReady, "True", v1.ReasonSucceeded))
	n.hasValue(t, "settings", "1")
}

// A StageSet whose kubeConfig leads nowhere is not applied to this cluster instead.
func TestKubeConfigThatLeadsNowhereIsNotThisCluster(t *testing.T) {
	n := shared(t).tenant(t)
	n.source(t, "app", map[string]string{"settings.yaml": configMap("settings", "1")})
	mark := n.Audit(t)
	n.stageSet(t, "app", "kubeConfig: {secretRef: {name: remote}}"+oneStage("app"))
	n.refusedWhole(t, "app", v1.ReasonKubeConfigInvalid, "Secret "+n.namespace+"/remote: there is none")
	n.wroteNothing(t, mark)
}

func TestReadyChecksWaitForWhatIsNotApplied(t *testing.T) {
	n := shared(t).tenant(t)
	revision := n.source(t, "app", map[string]string{
		"one/settings.yaml": configMap("first", "1"), "two/settings.yaml": configMap("second", "1"),
	})
	mark := n.Audit(t)
	n.stageSet(t, "app", `
serviceAccountName: `+deployer+`
stages:
- name: one
  path: one
  sourceRef: {kind: GitRepository, name: app}
  readyChecks: {checks: [{apiVersion: apps/v1, kind: Deployment, name: database}]}
- name: two
  path: two
  sourceRef: {kind: GitRepository, name: app}
`)
	n.wait(t, "app", phase("one", v1.StageVerifying),
		messageHas("Deployment.apps "+n.namespace+"/database: of readyChecks does not exist yet"))
	n.applyIn(t, heldDeployment("database", "1"))
	n.wait(t, "app", phase("one", v1.StageVerifying), messageHas("Deployment.apps "+n.namespace+"/database: Available: 0/1"))
	n.noWriteOf(t, mark, "configmaps", "second")
	n.releasePods(t, cluster.Ref("apps/v1", "Deployment", n.namespace, "database"), "Available")
	n.waitReady(t, "app", "app", revision)
}

// applyIn applies one object to the tenant's namespace as the administrator.
func (n *tenant) applyIn(t *testing.T, manifest string) {
	t.Helper()
	n.Apply(t, strings.Replace(manifest, "metadata: {", "metadata: {namespace: "+n.namespace+", ", 1))
}

func job(name string) string {
	return fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata: {name: %s}
spec:
  template:
    metadata: {labels: {%s: "true"}}
    spec: {restartPolicy: Never, containers: [{name: job, image: registry.invalid/job:1}]}
`, name, cluster.NotReady)
}

// T-36: a Job that runs is not ready; one that has completed is.
func TestJobHasToComplete(t *testing.T) {
	n := shared(t).tenant(t)
	revision := n.source(t, "app", map[string]string{
		"one/migrate.yaml": job("migrate"), "two/settings.yaml": configMap("settings", "1"),
	})
	mark := n.Audit(t)
	n.stageSet(t, "app", twoStages("app"))
	n.wait(t, "app", phase("one", v1.StageVerifying),
		messageHas("stage one waits for Job.batch "+n.namespace+"/migrate: Job has not completed"))
	n.passWaits(t, "app")
	n.noWriteOf(t, mark, "configmaps", "settings")
	n.releasePods(t, cluster.Ref("batch/v1", "Job", n.namespace, "migrate"), "Complete")
	n.waitReady(t, "app", "app", revision)
}

// T-38: what says that it failed ends the wait at once, however long the timeout, and says why.
func TestFailedObjectEndsTheWait(t *testing.T) {
	n := shared(t).tenant(t)
	gadget := n.gadgets(t)
	broken := gadget.ref(n.namespace, "broken")
	n.applyIn(t, strings.Replace(gadget.manifest("broken"), "size: 1", "size: 0", 1))
	n.condition(t, broken, "Reconciling", "True", "Winding", "is wound up")
	n.source(t, "app", map[string]string{
		"one/gadget.yaml": gadget.manifest("broken"), "two/settings.yaml": configMap("settings", "1"),
	})
	mark := n.Audit(t)
	n.stageSet(t, "app", "timeout: 1h"+twoStages("app"))
	n.wait(t, "app", phase("one", v1.StageVerifying))

	n.condition(t, broken, "Stalled", "True", "OutOfStock", "there are no more springs")
	n.refusedForHealth(t, "stage one: Gadget."+gadget.group+" "+n.namespace+"/broken: there are no more springs")
	n.noWriteOf(t, mark, "configmaps", "settings")

	// It is mended without the StageSet changing.
	n.condition(t, broken, "Stalled", "False", "InStock", "")
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "True", v1.ReasonSucceeded))
}

func (n *tenant) refusedForHealth(t *testing.T, message string) {
	t.Helper()
	n.wait(t, "app", phase("one", v1.StageFailed), messageHas(message),
		cluster.Condition(v1.ConditionReady, "False", v1.ReasonHealthCheckFailed),
		cluster.Condition(v1.ConditionStalled, "True", v1.ReasonHealthCheckFailed))
	n.waitEvent(t, "app", "Warning", v1.ReasonHealthCheckFailed, message)
}

// condition sets the only condition of an object, observed at its present generation.
func (n *tenant) condition(t *testing.T, ref *unstructured.Unstructured, kind, status, reason, message string) {
	t.Helper()
	now := metav1.Now().UTC().Format(time.RFC3339)
	n.say(t, ref, fmt.Sprintf(`{"observedGeneration":%d,"conditions":[`+
		`{"type":%q,"status":%q,"reason":%q,"message":%q,"lastTransitionTime":%q}]}`,
		n.WaitFor(t, ref).GetGeneration(), kind, status, reason, message, now))
}

// T-35: a custom resource whose controller has said nothing yet does not let the next stage start.
func TestStageWaitsForACustomResourceToSaySomething(t *testing.T) {
	n := shared(t).tenant(t)
	gadget := n.gadgets(t)
	revision := n.source(t, "app", map[string]string{
		"one/gadget.yaml": gadget.manifest("silent"), "two/settings.yaml": configMap("settings", "1"),
	})
	n.stageSet(t, "app", twoStages("app"))
	n.wait(t, "app", phase("one", v1.StageVerifying), messageHas("silent: has no status yet"))
	n.absent(t, n.configMap("settings"))

	n.condition(t, gadget.ref(n.namespace, "silent"), "Ready", "True", "Wound", "it ticks")
	n.waitReady(t, "app", "app", revision)
	n.WaitFor(t, n.configMap("settings"))
}
