package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// stageWith is YAML of the spec of a StageSet of two stages whose first has these ready checks.
func stageWith(source, ready string) string {
	return strings.Replace(twoStages(source), "name: one, ", "name: one, readyChecks: "+ready+", ", 1)
}

// A stage has its own words for what healthy is, of what it applies and of what it only waits for.
func TestExpressionsSayWhatHealthyIs(t *testing.T) {
	n := shared(t).tenant(t)
	kind := n.gadgets(t)
	applied, other := kind.ref(n.namespace, "applied"), kind.ref(n.namespace, "other")
	n.applyIn(t, kind.manifest("other"))
	revision := n.source(t, "app", map[string]string{
		"one/gadget.yaml": kind.manifest("applied"), "two/settings.yaml": configMap("settings", "1"),
	})
	n.stageSet(t, "app", stageWith("app", fmt.Sprintf("{checks: [{apiVersion: %[1]s/v1, kind: Gadget, name: other}], "+
		"exprs: [{apiVersion: %[1]s/v1, kind: Gadget, current: \"status.springs == spec.size\", failed: \"status.springs > 1\"}]}",
		kind.group)))
	name := "Gadget." + kind.group + " " + n.namespace + "/"
	// An expression that cannot be evaluated is named.
	n.wait(t, "app", phase("one", v1.StageVerifying),
		messageHas(name+"applied: failed of readyChecks.exprs reads status.springs, but springs is not set"))

	n.say(t, applied, `{"springs":1,"conditions":[{"type":"Ready","status":"False","reason":"Ignored"}]}`)
	n.say(t, other, `{"springs":0}`)
	n.wait(t, "app", phase("one", v1.StageVerifying),
		messageHas("stage one waits for "+name+"other: current of readyChecks.exprs does not hold"))
	n.absent(t, n.configMap("settings"))
	n.say(t, other, `{"springs":2}`)
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonHealthCheckFailed),
		messageHas(name+"other: failed of readyChecks.exprs holds"))
	n.say(t, other, `{"springs":1}`)
	n.waitReady(t, "app", "app", revision)
}

// T-41: what can never be healthy is wrong in the spec, said before anything is written, all of it at once.
func TestReadyChecksThatCannotBeAreInvalid(t *testing.T) {
	n := shared(t).tenant(t)
	n.source(t, "app", map[string]string{
		"one/settings.yaml": configMap("first", "1"), "two/settings.yaml": configMap("second", "1"),
	})
	mark := n.Audit(t)
	n.stageSet(t, "app", stageWith("app", `{
  exprs: [{apiVersion: apps/v1, kind: Deployment, current: "statsu.ready"}],
  checks: [{apiVersion: apps/v1, kind: Deploymnet, name: web}, {apiVersion: a/b/c, kind: Web, name: web},
    {apiVersion: v1, kind: Pod, name: a/b}]}`))
	n.refusedWhole(t, "app", v1.ReasonInvalidSpec, "stage one: "+
		"readyChecks.exprs of apps/v1 Deployment: current: line 1, column 1: undeclared reference to 'statsu'; readyChecks.checks of apps/v1 Deploymnet web: there is no such kind; "+
		"readyChecks.checks of a/b/c Web web: apiVersion is no group and version; "+
		"readyChecks.checks of v1 Pod a/b: the name may not contain '/'")
	n.wroteNothing(t, mark)
}

// T-41: a kind that nothing brings is wrong in the spec too, once nothing else is waited for; who installs it mends it.
func TestReadyCheckOfAKindThatIsNotServed(t *testing.T) {
	n := shared(t).tenant(t)
	kind := gadgetKind{group: n.namespace + ".example.com"}
	revision := n.source(t, "app", map[string]string{
		"one/web.yaml": heldDeployment("web", "1"), "two/settings.yaml": configMap("settings", "1"),
	})
	n.stageSet(t, "app", stageWith("app", "{checks: [{apiVersion: "+kind.group+"/v1, kind: Gadget, name: missing}]}"))
	name := "Gadget." + kind.group + " " + n.namespace + "/missing"
	n.wait(t, "app", phase("one", v1.StageVerifying),
		messageHas(name+": of readyChecks is of a kind that the cluster does not serve"))
	n.releasePods(t, cluster.Ref("apps/v1", "Deployment", n.namespace, "web"), "Available")
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonInvalidSpec),
		cluster.Condition(v1.ConditionStalled, "True", v1.ReasonInvalidSpec),
		messageHas("stage one: readyChecks.checks: "+name+": the cluster serves no Gadget of "+kind.group+"/v1: correct it, or "+
			"install what defines the kind"))

	n.gadgets(t)
	n.applyIn(t, kind.manifest("missing"))
	n.condition(t, kind.ref(n.namespace, "missing"), "Ready", "True", "Wound", "it ticks")
	n.waitReady(t, "app", "app", revision)
}

// T-41: a kind without namespaces is looked for in none. Who may not read it is told so before
// anything is written.
func TestReadyCheckOfAKindWithoutNamespaces(t *testing.T) {
	n := shared(t).tenant(t)
	role := "e2e-" + n.namespace
	revision := n.source(t, "app", map[string]string{
		"one/settings.yaml": configMap("first", "1"), "two/settings.yaml": configMap("second", "1"),
	})
	mark := n.Audit(t)
	n.stageSet(t, "app", "retryInterval: 1s"+stageWith("app",
		"{checks: [{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, name: "+role+"}]}"))
	name := "ClusterRole.rbac.authorization.k8s.io " + role
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonPermissionsMissing),
		preflight("False", "stage one: get clusterroles.rbac.authorization.k8s.io ("+role+")"))
	n.wroteNothing(t, mark)

	n.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: %[1]s-reader}
rules: [{apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], resourceNames: [%[1]s], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s-reader}
subjects: [{kind: ServiceAccount, name: %[2]s, namespace: %[3]s}]`, role, deployer, n.namespace))
	for _, name := range []string{role, role + "-reader"} {
		n.deleteAfter(t, cluster.Ref("rbac.authorization.k8s.io/v1", "ClusterRole", "", name))
	}
	n.deleteAfter(t, cluster.Ref("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", role+"-reader"))
	n.wait(t, "app", phase("one", v1.StageVerifying), messageHas(name+": of readyChecks does not exist yet"))
	n.Apply(t, "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: "+role+"}}")
	n.waitReady(t, "app", "app", revision)
}

func TestStageThatDoesNotWait(t *testing.T) {
	n := shared(t).tenant(t)
	kind := n.gadgets(t)
	n.applyIn(t, kind.manifest("other"))
	// One that says nothing would do after a while.
	n.condition(t, kind.ref(n.namespace, "other"), "Ready", "False", "Loose", "it has to be wound")
	revision := n.source(t, "app", map[string]string{
		"one/web.yaml": heldDeployment("web", "1"), "two/settings.yaml": configMap("settings", "1"),
	})
	n.stageSet(t, "app", stageWith("app",
		"{disableWait: true, checks: [{apiVersion: "+kind.group+"/v1, kind: Gadget, name: other}]}"))
	// What it says to wait for is waited for, and named alone.
	n.wait(t, "app", phase("one", v1.StageVerifying),
		messageHas("stage one waits for Gadget."+kind.group+" "+n.namespace+"/other: it has to be wound"))
	n.absent(t, n.configMap("settings"))
	n.condition(t, kind.ref(n.namespace, "other"), "Ready", "True", "Wound", "it ticks")
	n.waitReady(t, "app", "app", revision)
	n.WaitFor(t, cluster.Ref("apps/v1", "Deployment", n.namespace, "web"), cluster.Condition("Available", "False"))
}

// T-47: what is not healthy in time has not failed. It is said, and looked at on.
func TestTimeoutHoldsAndFinishesByItself(t *testing.T) {
	n := shared(t).tenant(t)
	revision := n.source(t, "app", map[string]string{
		"one/web.yaml": heldDeployment("web", "1"), "two/settings.yaml": configMap("settings", "1"),
	})
	mark := n.Audit(t)
	n.stageSet(t, "app", "timeout: 1h\nonTimeout: Hold\n"+stageWith("app", "{timeout: 1s}"))
	message := "stage one is not healthy within its timeout: Deployment.apps " + n.namespace + "/web: "
	n.wait(t, "app", phase("one", v1.StageHeld), phase("two", v1.StagePending), messageHas(message),
		cluster.Condition(v1.ConditionReady, "False", v1.ReasonHealthCheckTimedOut),
		cluster.Condition(v1.ConditionReconciling, "True", v1.ReasonHealthCheckTimedOut))
	n.waitEvent(t, "app", "Warning", v1.ReasonHealthCheckTimedOut, message)
	n.noWriteOf(t, mark, "configmaps", "settings")
	n.releasePods(t, cluster.Ref("apps/v1", "Deployment", n.namespace, "web"), "Available")
	n.waitReady(t, "app", "app", revision)
}

// T-47, T-38: a rollout that says that it exceeded its deadline has failed, however long the timeout.
func TestDeploymentThatExceedsItsDeadlineHasFailed(t *testing.T) {
	n := shared(t).tenant(t)
	web := strings.Replace(heldDeployment("web", "1"), "  replicas: 1\n", "  replicas: 1\n  progressDeadlineSeconds: 1\n", 1)
	n.source(t, "app", map[string]string{"one/web.yaml": web, "two/settings.yaml": configMap("settings", "1")})
	n.stageSet(t, "app", "timeout: 24h"+twoStages("app"))
	n.refusedForHealth(t, "stage one: Deployment.apps "+n.namespace+"/web: ")
	n.absent(t, n.configMap("settings"))
}

// A rollback is refused by name as long as there is none.
func TestRollbackIsRefusedForNow(t *testing.T) {
	n := shared(t).bareTenant(t)
	for _, spec := range []string{
		"onTimeout: Rollback" + oneStage("app"),
		strings.Replace(oneStage("app"), "name: app, ", "name: app, onTimeout: Rollback, ", 1),
	} {
		output, err := n.kubectl(t, n.stageSetYAML(t, "app", spec), "apply", "-f", "-")
		if err == nil || !strings.Contains(output, `onTimeout: Unsupported value: "Rollback": supported values: "Hold"`) {
			t.Errorf("kubectl apply says %v: %s", err, output)
		}
	}
}

// T-42: a message names what is waited for and nothing else.
func TestOnlyWhatIsNotReadyIsNamed(t *testing.T) {
	n := shared(t).tenant(t)
	manifests := []string{heldDeployment("web-12", "1")}
	for i := range 30 {
		if i != 12 {
			manifests = append(manifests, deployment(fmt.Sprintf("web-%02d", i), "1"))
		}
	}
	n.source(t, "app", map[string]string{"app.yaml": documents(manifests...)})
	n.stageSet(t, "app", oneStage("app"))
	only := "stage app waits for Deployment.apps " + n.namespace + "/web-12: "
	// The others take their time, too: in the end nothing but the one is named.
	cluster.Eventually(t, func(ctx context.Context) error {
		var set v1.StageSet
		if err := n.Client.Get(ctx, client.ObjectKeyFromObject(n.ref("app")), &set); err != nil {
			return err
		}
		message := readyMessage(&set)
		if !strings.HasPrefix(message, only) || strings.Count(message, "Deployment.apps") != 1 || strings.Contains(message, "more") {
			return fmt.Errorf("the message is %q", message)
		}
		return nil
	})
}

// T-45: a StageSet that is suspended is not ready, although its Ready is True.
func TestSuspendedChildIsNotReady(t *testing.T) {
	n := shared(t).tenant(t)
	child := func(extra string) string {
		return n.stageSetYAML(t, "child", extra+oneStage("child"))
	}
	n.source(t, "child", map[string]string{"settings.yaml": configMap("child", "1")})
	files := map[string]string{"one/child.yaml": child(""), "two/settings.yaml": configMap("settings", "1")}
	first := n.source(t, "app", files)
	n.stageSet(t, "app", twoStages("app"))
	n.waitReady(t, "app", "app", first)

	files["one/child.yaml"], files["two/settings.yaml"] = child("suspend: true"), configMap("settings", "2")
	second := n.source(t, "app", files)
	n.wait(t, "app", n.revision("lastAttemptedRevisions", "app", second), phase("one", v1.StageVerifying),
		messageHas("stage one waits for StageSet.stages.metio.wtf "+n.namespace+"/child: is suspended"))
	n.wait(t, "child", cluster.Condition(v1.ConditionReady, "True", v1.ReasonSuspended))
	n.passWaits(t, "app")
	n.hasValue(t, "settings", "1")
	files["one/child.yaml"] = child("")
	third := n.source(t, "app", files)
	n.waitReady(t, "app", "app", third)
}

// T-44: what is scaled while it is waited for is waited for as it is then, and a stage that is empty for nothing.
func TestScaledWhileItIsWaitedFor(t *testing.T) {
	n := shared(t).tenant(t)
	web := cluster.Ref("apps/v1", "Deployment", n.namespace, "web")
	revision := n.source(t, "app", map[string]string{
		"one/web.yaml":      strings.Replace(heldDeployment("web", "1"), "  replicas: 1\n", "", 1),
		"two/README.md":     "nothing yet",
		"three/config.yaml": configMap("settings", "1"),
	})
	n.stageSet(t, "app", threeStages)
	n.wait(t, "app", phase("one", v1.StageVerifying))
	mark := n.Audit(t)
	n.patch(t, web, `{"spec":{"replicas":3}}`)
	n.passWaits(t, "app")
	n.releasePods(t, web, "Available")
	n.waitReady(t, "app", "app", revision)
	n.noWriteOf(t, mark, "deployments", "web")
	if diff := cmp.Diff(int64(3), replicas(t, n.live(t, web))); diff != "" {
		t.Errorf("replicas (-want +got):\n%s", diff)
	}
}

// T-44: what was healthy as it was applied does not hold the stage up because somebody scales it meanwhile.
func TestScalingHoldsNothingUp(t *testing.T) {
	n := shared(t).tenant(t)
	gadget := n.gadgets(t)
	web := cluster.Ref("apps/v1", "Deployment", n.namespace, "web")
	revision := n.source(t, "app", map[string]string{
		"one/app.yaml": documents(strings.Replace(deployment("web", "1"), "  replicas: 1\n", "", 1), gadget.manifest("slow")),
		"two/app.yaml": configMap("settings", "1"),
	})
	n.stageSet(t, "app", twoStages("app"))
	slow := gadget.ref(n.namespace, "slow")
	n.condition(t, slow, "Ready", "False", "Loose", "it has to be wound")
	n.WaitFor(t, web, cluster.Condition("Available", "True"))
	n.wait(t, "app", messageHas("stage one waits for Gadget."+gadget.group+" "+n.namespace+"/slow: it has to be wound"))

	n.applyIn(t, "{apiVersion: v1, kind: ResourceQuota, metadata: {name: pods}, spec: {hard: {pods: 1}}}")
	n.WaitFor(t, cluster.Ref("v1", "ResourceQuota", n.namespace, "pods"), field("1", "status", "used", "pods"))
	n.patch(t, web, `{"spec":{"replicas":3}}`)
	n.WaitFor(t, web, cluster.Condition("Available", "False"))
	n.condition(t, slow, "Ready", "True", "Wound", "it ticks")
	n.waitReady(t, "app", "app", revision)
	n.hasValue(t, "settings", "1")
}

func replicas(t *testing.T, live *unstructured.Unstructured) int64 {
	t.Helper()
	count, _, err := unstructured.NestedInt64(live.Object, "spec", "replicas")
	if err != nil {
		t.Fatal(err)
	}
	return count
}
