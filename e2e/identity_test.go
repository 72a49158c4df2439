package e2e

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// anyAccount is a release whose first stage names no account, and whose second one names the tenant's.
const anyAccount = `
retryInterval: 1s
stages:
- {name: one, path: one, sourceRef: {kind: GitRepository, name: app}}
- {name: two, path: two, sourceRef: {kind: GitRepository, name: app}, serviceAccountName: ` + deployer + `}`

// writers are the writes to ConfigMaps of the tenant since the mark, by the account that made them: "name: verb object".
func (n *tenant) writers(t *testing.T, mark cluster.AuditMark) []string {
	t.Helper()
	ofConfigMaps := func(e cluster.AuditEvent) bool { return e.Resource == "configmaps" }
	var lines []string
	for _, event := range mark.Since(t, cluster.InNamespace(n.namespace), cluster.Writes, ofConfigMaps) {
		_, account, _ := strings.Cut(strings.TrimPrefix(event.User, "system:serviceaccount:"), ":")
		lines = append(lines, account+": "+event.Verb+" "+event.Name)
	}
	return lines
}

// T-19, T-118, P-58: a StageSet that names no account is applied with the reconciler's own where that is allowed, and
// nowhere else, whatever the reconciler may do there. A stage that names one has that one's rights alone.
func TestControllerIdentityIsUsedWhereItIsAllowed(t *testing.T) {
	s := setup(t)
	allowed, elsewhere := s.tenant(t), s.tenant(t)
	i := s.install(t, allowed.namespace, elsewhere.namespace)
	watch := "--watch-namespaces=" + allowed.namespace + "," + elsewhere.namespace
	allow := "--allow-controller-identity=" + allowed.namespace
	files := map[string]string{"one/a.yaml": configMap("first", "1"), "two/b.yaml": configMap("second", "1")}
	revision := allowed.source(t, "app", files)
	for _, n := range []*tenant{allowed, elsewhere} {
		i.bind(t, s.Cluster, programReconciler, "ClusterRole", "edit", n.namespace)
		n.source(t, "app", files)
	}
	mark := s.Audit(t)
	reconciler := i.run(t, s, watch, allow)
	allowed.stageSet(t, "app", anyAccount)
	elsewhere.stageSet(t, "app", anyAccount)
	set := allowed.waitReady(t, "app", "app", revision)
	applied := []string{"stageset-reconciler: patch first", deployer + ": patch second"}
	if diff := cmp.Diff(applied, allowed.writers(t, mark)); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if got := set.Status.Stages[0].ServiceAccountName + " " + set.Status.Stages[1].ServiceAccountName; got != " "+deployer {
		t.Errorf("accounts in the status: %q", got)
	}
	elsewhere.refusedWhole(t, "app", v1.ReasonPolicyViolation,
		"service-account-required/stages: stages without an account: one")

	allowed.account(t, "powerless")
	allowed.stageSet(t, "named", strings.ReplaceAll(oneStage("app"), deployer, "powerless"))
	allowed.refusedWhole(t, "named", v1.ReasonAccessDenied, "ServiceAccount "+allowed.namespace+"/powerless may not read")

	// The webhook says the same.
	s.startAdmissionOf(t, i, []*tenant{allowed, elsewhere}, watch, allow)
	output, err := s.kubectl(t, allowed.stageSetYAML(t, "other", anyAccount), "apply", "--dry-run=server", "-f", "-")
	if err != nil {
		t.Errorf("denied where it is allowed: %s", output)
	}
	output, err = s.kubectl(t, elsewhere.stageSetYAML(t, "other", anyAccount), "apply", "--dry-run=server", "-f", "-")
	if err == nil || !strings.Contains(output, "service-account-required/stages: stages without an account: one") {
		t.Errorf("not denied elsewhere: %s", output)
	}

	// An inventory without an account is honoured under the same condition: not any more, and then again.
	if err := reconciler.Stop(); err != nil {
		t.Fatal(err)
	}
	mark = s.Audit(t)
	reconciler = i.run(t, s, watch, policyConfig(t, "rules: {service-account-required: \"Off\"}"))
	const notAllowed = "no ServiceAccount in namespace %s is named, and --allow-controller-identity does not allow"
	allowed.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonServiceAccountRequired))
	elsewhere.refusedWhole(t, "app", v1.ReasonServiceAccountRequired, "stage one: set spec.serviceAccountName")
	allowed.delete(t, "app")
	allowed.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonPermissionsMissing),
		messageHas("ConfigMap "+allowed.namespace+"/first: "+strings.ReplaceAll(notAllowed, "%s", allowed.namespace)))
	allowed.hasValue(t, "first", "1")
	if err := reconciler.Stop(); err != nil {
		t.Fatal(err)
	}
	i.run(t, s, watch, allow)
	allowed.gone(t, "app")
	want := []string{deployer + ": delete second", "stageset-reconciler: delete first"}
	if diff := cmp.Diff(want, allowed.writers(t, mark)); diff != "" {
		t.Errorf("deletions (-want +got):\n%s", diff)
	}
	if writes := elsewhere.writers(t, mark); len(writes) > 0 {
		t.Errorf("writes elsewhere: %v", writes)
	}
}

// T-02, T-17, T-111: whatever is done for a stage is done as its account, where no other of the StageSet's could: apply,
// look for drift, correct it, prune, and take the stage down once it has left the spec.
func TestStageIsServedByItsAccountAlone(t *testing.T) {
	n := shared(t).tenant(t)
	other := n.Namespace(t, "other")
	n.account(t, "second")
	n.Apply(t, readerRole(n.namespace, "app"))
	n.grant(t, n.namespace, "second", "Role", "read-app")
	n.grant(t, other, "second", "ClusterRole", "edit")
	elsewhere := &tenant{suite: n.suite, namespace: other}
	mark := n.Audit(t)
	files := map[string]string{
		"one/a.yaml": configMap("first", "1"), "two/web.yaml": deployment("web", "1"), "two/b.yaml": configMap("second", "1"),
		"two/c.yaml": configMap("leaves", "1"),
	}
	revision := n.source(t, "app", files)
	one := "{name: one, path: one, sourceRef: {kind: GitRepository, name: app}}"
	two := "{name: two, path: two, sourceRef: {kind: GitRepository, name: app}, serviceAccountName: second, targetNamespace: " +
		other + "}"
	n.stageSet(t, "app", "serviceAccountName: "+deployer+"\nstages: ["+one+", "+two+"]")
	n.waitReady(t, "app", "app", revision)
	n.patch(t, elsewhere.configMap("second"), `{"data":{"value":"theirs"}}`)
	n.request(t, "app", "drift")
	n.WaitFor(t, elsewhere.configMap("second"), field("1", "data", "value"))
	delete(files, "two/c.yaml")
	n.waitReady(t, "app", "app", n.source(t, "app", files))
	n.WaitGone(t, elsewhere.configMap("leaves"))
	n.stageSet(t, "app", "serviceAccountName: "+deployer+"\nstages: ["+one+"]")
	n.WaitGone(t, cluster.Ref("apps/v1", "Deployment", other, "web"))
	n.WaitGone(t, elsewhere.configMap("second"))

	if events := mark.Since(t, n.by(deployer), cluster.InNamespace(other)); len(events) > 0 {
		t.Errorf("the StageSet's account in the namespace of stage two: %v", events)
	}
	done := map[string]bool{}
	for _, event := range mark.Since(t, n.by("second")) {
		if event.Namespace == n.namespace && (event.Resource != "gitrepositories" || event.Verb != "get") {
			t.Errorf("the account of stage two, in the namespace of stage one: %s", event)
		}
		done[event.Verb+" "+event.Resource] = true
	}
	for _, what := range []string{
		"patch configmaps", "list configmaps", "delete configmaps", "patch deployments", "delete deployments",
	} {
		if !done[what] {
			t.Errorf("the account of stage two did not %s: %v", what, done)
		}
	}
}

// P-59: the default account is for StageSets that name none, and is none of another cluster.
func TestDefaultServiceAccount(t *testing.T) {
	s := setup(t)
	n := s.tenant(t)
	i := s.install(t, n.namespace)
	n.account(t, "other", "edit")
	revision := n.source(t, "app", map[string]string{
		"one/a.yaml": configMap("first", "1"), "two/b.yaml": configMap("second", "1"),
	})
	mark := s.Audit(t)
	i.run(t, s, "--watch-namespaces="+n.namespace, "--default-service-account=other")
	n.stageSet(t, "app", anyAccount)
	n.stageSet(t, "remote", "kubeConfig: {secretRef: {name: remote}}"+anyAccount)
	n.waitReady(t, "app", "app", revision)
	if diff := cmp.Diff([]string{"other: patch first", deployer + ": patch second"}, n.writers(t, mark)); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	n.refusedWhole(t, "remote", v1.ReasonPolicyViolation,
		"service-account-required/kubeconfig: kubeConfig is read as spec.serviceAccountName")
}

// Both keys of a Namespace mean something where they are trusted, from the moment that they are set, and nothing otherwise.
func TestKeysOfANamespaceCountWhereTheyAreTrusted(t *testing.T) {
	for name, test := range map[string]struct {
		config string
		counts bool
	}{"trusted": {"trustNamespaceKeys: true", true}, "not trusted": {"trustNamespaceKeys: false", false}} {
		t.Run(name, func(t *testing.T) {
			s := setup(t)
			owner, n := s.tenant(t), s.tenant(t)
			i := s.install(t, n.namespace)
			i.run(t, s, "--watch-namespaces="+n.namespace, policyConfig(t, test.config))
			revision := owner.source(t, "shared", map[string]string{"a.yaml": configMap("settings", "1")})
			owner.Apply(t, readerRole(owner.namespace, "shared"))
			n.grant(t, owner.namespace, deployer, "Role", "read-shared")
			n.stageSet(t, "guest", "serviceAccountName: "+deployer+"\nretryInterval: 1s\n"+
				"stages: [{name: app, sourceRef: {kind: GitRepository, name: shared, namespace: "+owner.namespace+"}}]")
			n.stageSet(t, "nameless", "retryInterval: 1s\nstages: [{name: app, sourceRef: {kind: GitRepository, name: own}}]")
			n.refusedWhole(t, "guest", v1.ReasonPolicyViolation, "no-cross-namespace-refs/sources")
			n.refusedWhole(t, "nameless", v1.ReasonPolicyViolation, "service-account-required/stages")

			n.source(t, "own", map[string]string{"a.yaml": configMap("own", "1")})
			namespace := cluster.Ref("v1", "Namespace", "", n.namespace)
			n.patch(t, namespace, `{"metadata":{"annotations":{"`+v1.AnnotationDefaultServiceAccount+`":"`+deployer+`"},`+
				`"labels":{"`+v1.LabelTenancy+`":"`+v1.TenancyPlatform+`"}}}`)
			if test.counts {
				n.wait(t, "guest", cluster.Condition(v1.ConditionReady, "True"),
					owner.revision("lastAppliedRevisions", "shared", revision))
				n.wait(t, "nameless", cluster.Condition(v1.ConditionReady, "True"))
				n.patch(t, namespace, `{"metadata":{"labels":{"`+v1.LabelTenancy+`":null}}}`)
				n.wait(t, "guest", cluster.Condition(v1.ConditionReady, "False", v1.ReasonPolicyViolation))
				return
			}
			for _, set := range []string{"guest", "nameless"} {
				n.request(t, set, "again")
				n.wait(t, set, handled("again"), cluster.Condition(v1.ConditionReady, "False", v1.ReasonPolicyViolation))
			}
		})
	}
}

// T-13: with the flag, no reference leaves its namespace, not even that of the platform's, and nothing is read to find out.
func TestNoReferenceLeavesItsNamespace(t *testing.T) {
	s := setup(t)
	s.ownReconciler(t, policyConfig(t, defaultPolicyConfig), "--no-cross-namespace-refs")
	owner, n := s.tenant(t), &tenant{suite: s, namespace: platform}
	owner.source(t, "shared", map[string]string{"a.yaml": configMap("settings", "1")})
	n.account(t, "confined", "edit")
	n.grant(t, owner.namespace, "confined", "ClusterRole", "edit")
	mark := s.Audit(t)
	for name, spec := range map[string]string{
		"source":     "stages: [{name: app, sourceRef: {kind: GitRepository, name: shared, namespace: " + owner.namespace + "}}]",
		"dependency": "dependsOn: [{name: any, namespace: " + owner.namespace + "}]" + anyAccount,
		"check": "stages: [{name: app, sourceRef: {kind: GitRepository, name: own}, readyChecks: {checks: [" +
			"{apiVersion: v1, kind: ConfigMap, name: any, namespace: " + owner.namespace + "}]}}]",
	} {
		n.deleteAfter(t, cluster.Ref(v1.GroupVersion.String(), "StageSet", platform, name))
		n.stageSet(t, name, "serviceAccountName: confined\n"+strings.TrimSpace(spec))
		n.refusedWhole(t, name, v1.ReasonPolicyViolation, "no-cross-namespace-refs/")
	}
	for _, event := range mark.Since(t, n.by("confined")) {
		t.Errorf("read before it was decided: %s", event)
	}
	for _, event := range mark.Since(t, cluster.ByAccount(system, programReconciler)) {
		if event.Namespace == owner.namespace || event.Subresource == "token" && event.Namespace == platform {
			t.Errorf("read before it was decided: %s", event)
		}
	}
}
