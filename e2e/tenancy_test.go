package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

func TestTenantBoundToEditNeedsNothingElse(t *testing.T) {
	n := shared(t).tenant(t)
	mark := n.Audit(t)
	revision := n.source(t, "app", map[string]string{
		"one/all.yaml": documents(configMap("settings", "1"), deployment("web", "1"),
			"apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [{port: 80}]}\n",
			"apiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData: {password: not-a-real-one}\n",
			"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: web}\n"),
		"two/settings.yaml": configMap("last", "1"),
	})
	n.stageSet(t, "app", twoStages("app"))
	n.waitReady(t, "app", "app", revision)
	refused := mark.Since(t, n.by(deployer), func(e cluster.AuditEvent) bool { return e.Code == http.StatusForbidden })
	if len(refused) > 0 {
		t.Errorf("the account was refused: %v", refused)
	}
	if written := n.written(t, mark, deployer); len(written) != 6 {
		t.Errorf("the account wrote %v, want one write of each of six objects", written)
	}
}

func TestStageRunsAsItsOwnAccount(t *testing.T) {
	n := shared(t).tenant(t)
	n.account(t, "second", "edit")
	mark := n.Audit(t)
	revision := n.source(t, "app", map[string]string{
		"one/settings.yaml": configMap("first", "1"), "two/settings.yaml": configMap("second", "1"),
	})
	n.stageSet(t, "app", `
serviceAccountName: `+deployer+`
stages:
- {name: one, path: one, sourceRef: {kind: GitRepository, name: app}}
- {name: two, path: two, sourceRef: {kind: GitRepository, name: app}, serviceAccountName: second}
`)
	set := n.waitReady(t, "app", "app", revision)
	accounts := map[string]string{}
	for _, stage := range set.Status.Stages {
		accounts[stage.Name] = stage.ServiceAccountName
	}
	if diff := cmp.Diff(map[string]string{"one": deployer, "two": "second"}, accounts); diff != "" {
		t.Errorf("accounts in the status (-want +got):\n%s", diff)
	}
	for account, want := range map[string][]string{
		deployer: {"patch configmaps/first"}, "second": {"patch configmaps/second"},
	} {
		if diff := cmp.Diff(want, n.written(t, mark, account)); diff != "" {
			t.Errorf("writes of %s (-want +got):\n%s", account, diff)
		}
	}
}

// T-05, T-19: each thing that an account can lack has a reason of its own, and a message that says what to do.
func TestWhatAnAccountLacksIsNamed(t *testing.T) {
	n := shared(t).bareTenant(t)
	n.source(t, "app", map[string]string{"app/settings.yaml": documents(configMap("one", "1"), configMap("two", "1"))})
	n.account(t, "powerless")
	n.account(t, "reader")
	n.Apply(t, readerRole(n.namespace, "app"))
	n.grant(t, n.namespace, "reader", "Role", "read-app")
	mark := n.Audit(t)
	const stages = "stages: [{name: app, sourceRef: {kind: GitRepository, name: app}}]\n"
	cases := map[string]struct {
		spec, reason string
		want         []string
	}{
		"rights to write": {
			spec: "serviceAccountName: reader\n" + stages, reason: v1.ReasonPermissionsMissing,
			want: []string{
				"stage app: get, create, patch, delete configmaps in " + n.namespace + " (one, two)",
				"roles have to allow it to system:serviceaccount:" + n.namespace + ":reader",
			},
		},
		"the right to read the source": {
			spec: "serviceAccountName: powerless\n" + stages, reason: v1.ReasonAccessDenied,
			want: []string{
				"stage app, as ServiceAccount " + n.namespace + "/powerless: ServiceAccount " + n.namespace + "/powerless may not read GitRepository " +
					n.namespace + "/app: grant it get on gitrepositories.source.toolkit.fluxcd.io named app in namespace " + n.namespace,
			},
		},
		"an existence": {
			spec: "serviceAccountName: typo\n" + stages, reason: v1.ReasonServiceAccountNotFound,
			want: []string{"service account " + n.namespace + "/typo does not exist: create it, or correct serviceAccountName"},
		},
		"a name": {
			spec: stages, reason: v1.ReasonPolicyViolation,
			want: []string{"service-account-required/stages: stages without an account: app; set spec.serviceAccountName"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			object := "lacks-" + strings.ReplaceAll(name, " ", "-")
			n.stageSet(t, object, tc.spec)
			n.refusedWhole(t, object, tc.reason, tc.want...)
		})
	}
	n.wroteNothing(t, mark)
}

// In a platform namespace no policy asks for an account, so that the reconciler does. T-19, T-118: it never uses its own,
// also where that may do everything.
func TestNobodyIsAppliedAsWithoutAnAccount(t *testing.T) {
	s := shared(t)
	n := &tenant{suite: s, namespace: platform}
	s.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: almighty, namespace: %s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: stageset-reconciler, namespace: %s}]`, platform, system))
	n.deleteAfter(t, cluster.Ref("rbac.authorization.k8s.io/v1", "RoleBinding", platform, "almighty"))
	n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	mark := s.Audit(t)
	n.deleteAfter(t, cluster.Ref(v1.GroupVersion.String(), "StageSet", platform, "no-account"))
	n.stageSet(t, "no-account", "stages: [{name: app, sourceRef: {kind: GitRepository, name: app}}]")
	n.refusedWhole(t, "no-account", v1.ReasonServiceAccountRequired,
		"stage app: set spec.serviceAccountName or the stage's serviceAccountName: no ServiceAccount in namespace platform is named, "+
			"and --allow-controller-identity does not allow the reconciler's own there")
	n.wroteNothing(t, mark)
	others := func(e cluster.AuditEvent) bool { return e.Group != v1.GroupVersion.Group && e.Group != "events.k8s.io" }
	reconciler := cluster.ByAccount(system, "stageset-reconciler")
	if events := mark.Since(t, reconciler, cluster.InNamespace(platform), cluster.Writes, others); len(events) > 0 {
		t.Errorf("the reconciler wrote with its own rights: %v", events)
	}
}

// refusedWhole waits until a StageSet is refused for good, with a message that has all texts, and checks that it did not
// come as far as being held by a finalizer.
func (n *tenant) refusedWhole(t *testing.T, name, reason string, texts ...string) {
	t.Helper()
	set := n.wait(t, name, cluster.Condition(v1.ConditionReady, "False", reason),
		cluster.Condition(v1.ConditionStalled, "True", reason))
	for _, text := range texts {
		if message := readyMessage(set); !strings.Contains(message, text) {
			t.Errorf("the message lacks %q:\n%s", text, message)
		}
	}
	if len(set.Finalizers) > 0 {
		t.Errorf("finalizers %v before anything was written", set.Finalizers)
	}
	n.waitEvent(t, name, "Warning", reason, texts[0])
}

// wroteNothing checks that no account of the tenant has written anything anywhere since the mark, and that there is no
// inventory.
func (n *tenant) wroteNothing(t *testing.T, mark cluster.AuditMark) {
	t.Helper()
	prefix := "system:serviceaccount:" + n.namespace + ":"
	ofTenant := func(e cluster.AuditEvent) bool { return strings.HasPrefix(e.User, prefix) }
	if events := mark.Since(t, ofTenant, cluster.Writes); len(events) > 0 {
		t.Errorf("the tenant's accounts wrote: %v", events)
	}
	var inventories v1.StageInventoryList
	if err := n.Client.List(t.Context(), &inventories, client.InNamespace(n.namespace)); err != nil {
		t.Fatal(err)
	}
	if len(inventories.Items) > 0 {
		t.Errorf("there are inventories: %v", inventories.Items)
	}
}

// readerRole is the role read-<name> that lets its subjects read one GitRepository.
func readerRole(namespace, name string) string {
	return fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: read-%[2]s, namespace: %[1]s}
rules:
- {apiGroups: [source.toolkit.fluxcd.io], resources: [gitrepositories], resourceNames: [%[2]s], verbs: [get]}
- {apiGroups: [stages.metio.wtf], resources: [stagesets], resourceNames: [%[2]s], verbs: [get]}
`, namespace, name)
}

// T-06, T-14: where the rule is off, who may read a source of another namespace, or depend on its StageSet, is RBAC's to
// say: that of the tenant, of one object, and at any time.
func TestSharingAcrossNamespacesIsPlainRBAC(t *testing.T) {
	s := setup(t)
	s.ownReconciler(t, policyConfig(t, "rules: {no-cross-namespace-refs: Off}"))
	owner, guest, stranger := s.tenant(t), s.tenant(t), s.tenant(t)
	revision := owner.source(t, "shared", map[string]string{"settings.yaml": configMap("settings", "1")})
	owner.stageSet(t, "shared", oneStage("shared"))
	owner.Apply(t, readerRole(owner.namespace, "shared"))
	for _, readable := range [][]string{ // as the document says, once more for dependsOn
		{"platform-charts", "source"},
		{"platform-charts", "stageset", "source.toolkit.fluxcd.io", v1.GroupVersion.Group, "gitrepositories", "stagesets"},
	} {
		owner.Apply(t, documentedYAML(t, "tenancy.md", "name: team-a-reads-platform-charts",
			append(readable, "platform", owner.namespace, "charts", "shared", "team-a", guest.namespace)...))
	}
	mark := s.Audit(t)
	const source = `
serviceAccountName: deployer
retryInterval: 1s
stages: [{name: app, sourceRef: {kind: GitRepository, name: shared, namespace: %s}}]`
	const dependency = `
serviceAccountName: deployer
retryInterval: 1s
dependsOn: [{name: shared, namespace: %s}]
stages: [{name: app, sourceRef: {kind: GitRepository, name: own}}]`
	applied := owner.revision("lastAppliedRevisions", "shared", revision)
	for _, n := range []*tenant{guest, stranger} {
		n.source(t, "own", map[string]string{"settings.yaml": configMap("own", "1")})
		n.stageSet(t, "source", fmt.Sprintf(source, owner.namespace))
		n.stageSet(t, "dependency", fmt.Sprintf(dependency, owner.namespace))
	}
	guest.wait(t, "source", cluster.Condition(v1.ConditionReady, "True"), applied)
	guest.wait(t, "dependency", cluster.Condition(v1.ConditionReady, "True"))

	stranger.refusedWhole(t, "source", v1.ReasonAccessDenied,
		"stage app, as ServiceAccount "+stranger.namespace+"/deployer: ServiceAccount "+stranger.namespace+"/deployer may not read GitRepository "+
			owner.namespace+"/shared: grant it get on gitrepositories.source.toolkit.fluxcd.io named shared in namespace "+
			owner.namespace)
	stranger.refusedWhole(t, "dependency", v1.ReasonAccessDenied,
		"ServiceAccount "+stranger.namespace+"/deployer may not get StageSet "+owner.namespace+"/shared in spec.dependsOn: "+
			"grant get on stagesets.stages.metio.wtf/shared in namespace "+owner.namespace+" to it")
	stranger.wroteNothing(t, mark)

	printed := stagesetctl(t, "grant", "source", "GitRepository/"+owner.namespace+"/shared",
		"--to", stranger.namespace+"/"+deployer)
	owner.Apply(t, strings.TrimPrefix(printed, "---\n"))
	stranger.wait(t, "source", cluster.Condition(v1.ConditionReady, "True"), applied)
	stranger.grant(t, owner.namespace, deployer, "Role", "read-shared")
	stranger.wait(t, "dependency", cluster.Condition(v1.ConditionReady, "True"))
}

// malicious is a commit that adds an object to good changes.
type malicious struct {
	account, manifest string
	reason            string
	want              []string
}

// bindingToClusterAdmin makes the account deployer of the tenant an administrator of the cluster.
func (n *tenant) bindingToClusterAdmin() string {
	return fmt.Sprintf(`apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s-takeover}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: deployer, namespace: %[1]s}]
`, n.namespace)
}

// Nothing of a commit is applied that has something in it that a policy refuses, or that the tenant may not do.
func TestMaliciousCommitIsRefusedAsAWhole(t *testing.T) {
	n := shared(t).tenant(t)
	n.account(t, "admin", "admin")
	cases := map[string]malicious{
		"the cluster": {
			account: deployer, manifest: n.bindingToClusterAdmin(), reason: v1.ReasonPolicyViolation,
			want: []string{
				"stage two: ClusterRoleBinding.rbac.authorization.k8s.io " + n.namespace + "-takeover",
				"no-privilege-escalation-manifests/cluster-admin: a tenant cannot grant cluster-admin",
			},
		},
		// No policy is about it, and the account may write bindings, but not give what it does not have.
		"rights that it does not have": {
			account: "admin", reason: v1.ReasonPermissionsMissing,
			manifest: "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: takeover}\n" +
				"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:node}\n" +
				"subjects: [{kind: ServiceAccount, name: admin, namespace: " + n.namespace + "}]\n",
			want: []string{
				"stage two: RoleBinding.rbac.authorization.k8s.io " + n.namespace + "/takeover (two/takeover.yaml:1): ",
				"attempting to grant RBAC permissions not currently held",
				"may write it, but only give what it has itself",
			},
		},
	}
	for name, commit := range cases {
		t.Run(name, func(t *testing.T) { n.refuseCommit(t, commit) })
	}
	n.noBinding(t)
}

// Where the policy is switched off, the API server says the same as the tenant is told by RBAC.
func TestMaliciousCommitIsRefusedWithoutPoliciesToo(t *testing.T) {
	s := setup(t)
	s.ownReconciler(t, policyConfig(t, "rules: {no-privilege-escalation-manifests: Off}"))
	n := s.tenant(t)
	n.refuseCommit(t, malicious{
		account: deployer, manifest: n.bindingToClusterAdmin(), reason: v1.ReasonPermissionsMissing,
		want: []string{
			"stage two: get, create, patch, delete clusterrolebindings.rbac.authorization.k8s.io (" + n.namespace + "-takeover)",
		},
	})
	n.noBinding(t)
}

func (n *tenant) noBinding(t *testing.T) {
	t.Helper()
	var binding rbacv1.ClusterRoleBinding
	name := n.namespace + "-takeover"
	if err := n.Client.Get(t.Context(), client.ObjectKey{Name: name}, &binding); !apierrors.IsNotFound(err) {
		t.Errorf("ClusterRoleBinding %s: got %v, want it not to exist", name, err)
	}
}

// refuseCommit has an account release a good commit, then the malicious one, and then one without what is malicious.
func (n *tenant) refuseCommit(t *testing.T, commit malicious) {
	t.Helper()
	account := commit.account
	name := "app-" + account
	good := func(version string) map[string]string {
		return map[string]string{
			"one/settings.yaml": documents(configMap(account+"-first", version), configMap(account+"-"+version, version)),
			"two/settings.yaml": configMap(account+"-second", version),
		}
	}
	repository := n.gitRepository(t, name)
	first := repository.push(t, good("1"))
	n.stageSet(t, name, strings.ReplaceAll(twoStages(name), deployer, account))
	n.waitReady(t, name, name, first)

	mark := n.Audit(t)
	bad := good("2")
	bad["two/takeover.yaml"] = commit.manifest
	second := repository.push(t, bad)
	set := n.wait(t, name, n.revision("lastAttemptedRevisions", name, second),
		cluster.Condition(v1.ConditionReady, "False", commit.reason),
		cluster.Condition(v1.ConditionStalled, "True", commit.reason))
	for _, text := range append(commit.want, "; still running "+set.Status.Revision) {
		if message := readyMessage(set); !strings.Contains(message, text) {
			t.Errorf("the message lacks %q:\n%s", text, message)
		}
	}
	if got := set.Status.LastAppliedRevisions[n.namespace+"/"+name]; got != first {
		t.Errorf("the last applied revision is %s, want %s", got, first)
	}
	if writes := mark.Since(t, n.by(account), cluster.Writes); len(writes) > 0 {
		t.Errorf("parts of the commit were applied: %v", writes)
	}
	n.hasValue(t, account+"-first", "1")
	n.hasValue(t, account+"-second", "1")

	third := repository.push(t, good("3"), "two/takeover.yaml")
	n.waitReady(t, name, name, third)
	n.hasValue(t, account+"-second", "3")
}

// T-17: a namespace is made by nobody else than the tenant, who may not.
func TestMissingTargetNamespaceIsNotMadeForATenant(t *testing.T) {
	n := shared(t).tenant(t)
	n.source(t, "app", map[string]string{"settings.yaml": configMap("settings", "1")})
	absent := n.namespace + "-absent"
	mark := n.Audit(t)
	n.stageSet(t, "app", `
serviceAccountName: `+deployer+`
stages: [{name: app, targetNamespace: `+absent+`, sourceRef: {kind: GitRepository, name: app}}]`)
	message := n.waitRefused(t, "app", v1.ReasonPermissionsMissing)
	if want := "create, patch, delete configmaps in " + absent + " (settings)"; !strings.Contains(message, want) {
		t.Errorf("the message lacks %q: %s", want, message)
	}
	n.wroteNothing(t, mark)
	var namespace corev1.Namespace
	if err := n.Client.Get(t.Context(), client.ObjectKey{Name: absent}, &namespace); !apierrors.IsNotFound(err) {
		t.Errorf("namespace %s: got %v, want it not to exist", absent, err)
	}
}

// T-17: what a tenant may not delete, deleting its StageSet does not delete either.
func TestDeletionIsTheTenants(t *testing.T) {
	n := shared(t).bareTenant(t)
	n.account(t, deployer, "view")
	role := func(verbs string) {
		n.Apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: writer, namespace: `+n.namespace+`}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [`+verbs+`]}]`)
	}
	role("get, list, create, patch, delete")
	n.grant(t, n.namespace, deployer, "Role", "writer")
	revision := n.source(t, "app", map[string]string{"settings.yaml": configMap("settings", "1")})
	n.stageSet(t, "app", "retryInterval: 1s"+oneStage("app"))
	n.waitReady(t, "app", "app", revision)
	role("get, list, create, patch")

	set := &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: "app"}}
	if err := n.Client.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	message := n.waitRefused(t, "app", v1.ReasonPermissionsMissing)
	for _, want := range []string{"ConfigMap " + n.namespace + "/settings", `cannot delete resource "configmaps"`} {
		if !strings.Contains(message, want) {
			t.Errorf("the message lacks %q: %s", want, message)
		}
	}
	n.hasValue(t, "settings", "1")

	role("get, list, create, patch, delete")
	n.WaitGone(t, cluster.Ref(v1.GroupVersion.String(), "StageSet", n.namespace, "app"))
	n.WaitGone(t, cluster.Ref("v1", "ConfigMap", n.namespace, "settings"))
}
