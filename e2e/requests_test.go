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

// A pass in which nothing has changed asks once for each source, dependency, reference and ready check, lists each kind in each
// namespace once, however many objects and stages there are, and writes nothing but that it was asked for.
func TestIdlePassAsksOnceForEachThing(t *testing.T) {
	n := shared(t).tenant(t)
	other := n.Namespace(t, "other")
	n.grant(t, other, deployer, "ClusterRole", "edit")
	many := func(prefix string) string {
		var manifests []string
		for number := range 20 {
			manifests = append(manifests, configMap(fmt.Sprintf("%s-%02d", prefix, number), "${value}"))
		}
		return documents(append(manifests, deployment(prefix, "1"))...)
	}
	n.applyIn(t, configMap("values", "1"))
	n.source(t, "base", map[string]string{"a.yaml": configMap("base", "1")})
	n.stageSet(t, "base", oneStage("base"))
	revision := n.source(t, "app", map[string]string{
		"one/a.yaml": many("one"), "two/b.yaml": many("two"), "three/c.yaml": many("three"),
	})
	n.stageSet(t, "app", fmt.Sprintf(`
interval: 24h
serviceAccountName: %[1]s
dependsOn: [{name: base}]
stages:
- name: one
  path: one
  sourceRef: {kind: GitRepository, name: app}
  postBuild: {substituteFrom: [{kind: ConfigMap, name: values}]}
- name: two
  path: two
  sourceRef: {kind: GitRepository, name: app}
  postBuild: {substituteFrom: [{kind: ConfigMap, name: values}]}
- name: three
  path: three
  targetNamespace: %[2]s
  sourceRef: {kind: GitRepository, name: app}
  readyChecks: {checks: [{apiVersion: apps/v1, kind: Deployment, name: three}]}
`, deployer, other))
	n.waitReady(t, "app", "app", revision)
	n.pass(t, "app", "settle")

	mark := n.Audit(t)
	n.pass(t, "app", "idle")
	var got []string
	for _, event := range mark.Since(t, n.by(deployer)) {
		place := strings.NewReplacer(n.namespace, "own", other, "other").Replace(event.Namespace)
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s in %s %s", event.Verb, event.Resource, place, event.Name)))
	}
	slices.Sort(got)
	want := []string{
		"get configmaps in own values",
		"get deployments in other three",
		"get gitrepositories in own app",
		"get stagesets in own base",
		"list configmaps in other", "list configmaps in own", "list deployments in other", "list deployments in own",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests as the tenant (-want +got):\n%s", diff)
	}
	var own []string
	for _, event := range mark.Since(t, cluster.ByAccount(system, "stageset-reconciler"), cluster.InNamespace(n.namespace)) {
		own = append(own, fmt.Sprintf("%s %s/%s %s", event.Verb, event.Resource, event.Subresource, event.Name))
	}
	if diff := cmp.Diff([]string{"patch stagesets/status app"}, own); diff != "" {
		t.Errorf("requests of the reconciler's own (-want +got):\n%s", diff)
	}
}

// An account that may not list is no reason to look at nothing: each object is read by its name.
func TestDriftIsFoundByAnAccountThatMayNotList(t *testing.T) {
	n := shared(t).bareTenant(t)
	n.account(t, deployer)
	n.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: no-list, namespace: %s}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get, create, patch, delete]}
- {apiGroups: [source.toolkit.fluxcd.io], resources: [gitrepositories], verbs: [get]}`, n.namespace))
	n.grant(t, n.namespace, deployer, "Role", "no-list")
	revision := n.source(t, "app", map[string]string{
		"a.yaml": documents(configMap("drifts", "1"), configMap("gone", "1"), configMap("same", "1")),
	})
	n.stageSet(t, "app", "interval: 24h"+oneStage("app"))
	n.waitReady(t, "app", "app", revision)
	n.patch(t, n.configMap("drifts"), `{"data":{"value":"theirs"}}`)
	if err := n.Client.Delete(t.Context(), n.configMap("gone")); err != nil {
		t.Fatal(err)
	}
	mark := n.Audit(t)
	n.pass(t, "app", "correct")
	got := slices.Sorted(slices.Values(n.written(t, mark, deployer)))
	if diff := cmp.Diff([]string{"patch configmaps/drifts", "patch configmaps/gone"}, got); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	n.hasValue(t, "drifts", "1")
	n.hasValue(t, "gone", "1")
}

// T-39: a change of the spec ends the wait at once.
func TestSpecChangeEndsTheWait(t *testing.T) {
	n := shared(t).tenant(t)
	revision := n.source(t, "app", map[string]string{
		"one/web.yaml": heldDeployment("web", "1"), "mended/web.yaml": deployment("web", "2"),
		"two/settings.yaml": configMap("settings", "1"),
	})
	n.stageSet(t, "app", "timeout: 24h"+twoStages("app"))
	n.wait(t, "app", phase("one", v1.StageVerifying))
	n.stageSet(t, "app", "timeout: 24h"+strings.Replace(twoStages("app"), "path: one", "path: mended", 1))
	n.waitReady(t, "app", "app", revision)
	n.hasValue(t, "settings", "1")
	n.WaitFor(t, cluster.Ref("apps/v1", "Deployment", n.namespace, "web"),
		cluster.Condition("Available", "True"))
}
