package e2e

import (
	"fmt"
	"strings"
	"testing"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/artifacts"
	"github.com/stageset/stageset/e2e/cluster"
)

// What a tenant may try, and where it is shown that nothing is gained and that the message is clear. Here, unless it says
// otherwise:
//
//   - another namespace's account: TestAccountOfAnotherNamespaceIsNotUsed; a name that leads elsewhere in a path:
//     TestNamesCannotLeadElsewhere (reconciler/tenant)
//   - a Secret that its account may not read: TestVariablesAreReadAsTheTenant; patches read nothing: they are text of the
//     StageSet, or files of the artifact (TestBadManifestsLeaveTheReleaseAlone)
//   - a kubeconfig: remote_test.go
//   - a source whose status names another host, an artifact of somebody else, or redirects:
//     TestArtifactFromElsewhereIsRefused; loopback and metadata addresses: TestLoopbackIsRefusedUnlessAllowed, and
//     reconciler/dial; another tenant's digest: TestDigestOfAnotherTenantGivesNothing
//   - an archive that escapes: TestBadArchiveLeavesTheReleaseAlone
//   - an inventory that the tenant edits: TestTenantRoles and TestInventoriesAreFenced (charts)
//   - labels that claim an object of another StageSet: TestLabelsClaimNothing; rendering it:
//     TestSecondOwnerOfAnObjectIsRefused
//   - updates that slip a spec past the webhook: TestNothingSlipsThroughAllowedUpdates (e2e/admission)
//   - a Namespace with keys of the product, a RoleBinding to cluster-admin, what goes to kube-system or to the product
//     itself: TestWhatATenantCannotRender; without the policies: TestMaliciousCommitIsRefusedWithoutPoliciesToo
//   - an inventory that has objects of others before they make them: TestNothingIsClaimedWithoutRights
//   - an account that is made again with other rights: TestRecreatedAccountHasItsOwnRights
//   - dependsOn as a probe: TestDependencyOnAForeignStageSetTellsNothing
//   - names and messages that break what is made of them: TestMessagesOfOthersStayOnTheirLine

// mighty makes an account of the tenant that may do everything in the whole cluster, until the end of the test.
func (n *tenant) mighty(t *testing.T) string {
	t.Helper()
	const name = "mighty"
	n.account(t, name)
	n.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s-mighty}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: %[2]s, namespace: %[1]s}]`, n.namespace, name))
	n.deleteAfter(t, cluster.Ref("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", n.namespace+"-mighty"))
	return name
}

// What RBAC would let an account do, the policies keep out of the releases of tenants.
func TestWhatATenantCannotRender(t *testing.T) {
	n := shared(t).tenant(t)
	account := n.mighty(t)
	mark := n.Audit(t)
	for name, attack := range map[string]struct{ manifest, want string }{
		"platform": {
			"apiVersion: v1\nkind: Namespace\nmetadata: {name: NAME, labels: {stages.metio.wtf/tenancy: platform}}\n",
			"reserved-namespace-keys/labels: a tenant cannot set these labels on a Namespace: stages.metio.wtf/tenancy",
		},
		"default-account": {
			"apiVersion: v1\nkind: Namespace\n" +
				"metadata: {name: NAME, annotations: {stages.metio.wtf/default-service-account: mighty}}\n",
			"reserved-namespace-keys/annotations: a tenant cannot set these annotations on a Namespace",
		},
		"binding": {
			"apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: takeover}\n" +
				"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}\n" +
				"subjects: [{kind: ServiceAccount, name: mighty, namespace: NAME}]\n",
			"no-privilege-escalation-manifests/cluster-admin: a tenant cannot grant cluster-admin",
		},
		"kube-system": {
			strings.Replace(configMap("takeover", "1"), "metadata: {", "metadata: {namespace: kube-system, ", 1),
			"reserved-namespaces/namespace: a tenant cannot apply anything to namespace kube-system, which is reserved",
		},
		"product": {
			strings.Replace(configMap("takeover", "1"), "metadata: {", "metadata: {namespace: "+system+", ", 1),
			"reserved-namespaces/namespace: a tenant cannot apply anything to namespace " + system + ", which is reserved",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n.source(t, name, map[string]string{"a.yaml": documents(configMap("harmless", "1"),
				strings.ReplaceAll(attack.manifest, "NAME", n.namespace))})
			n.stageSet(t, name, strings.ReplaceAll(oneStage(name), deployer, account))
			n.refusedWhole(t, name, v1.ReasonPolicyViolation, attack.want)
		})
	}
	t.Run("target namespace", func(t *testing.T) {
		n.source(t, "target", map[string]string{"a.yaml": configMap("takeover", "1")})
		n.stageSet(t, "target", "serviceAccountName: "+account+
			"\nstages: [{name: app, targetNamespace: kube-system, sourceRef: {kind: GitRepository, name: target}}]")
		n.refusedWhole(t, "target", v1.ReasonPolicyViolation, "namespace kube-system, which is reserved")
	})
	n.wroteNothing(t, mark)
}

// An account is always one of the StageSet's own namespace, however powerful one of that name is elsewhere.
func TestAccountOfAnotherNamespaceIsNotUsed(t *testing.T) {
	n := shared(t).bareTenant(t)
	victim := n.suite.bareTenant(t)
	victim.account(t, "powerful", "admin")
	mark := n.Audit(t)
	n.stageSet(t, "app", strings.ReplaceAll(oneStage("app"), deployer, "powerful"))
	n.refusedWhole(t, "app", v1.ReasonServiceAccountNotFound, "service account "+n.namespace+"/powerful does not exist")
	n.stageSet(t, "path", strings.ReplaceAll(oneStage("app"), deployer, "../../"+victim.namespace+"/serviceaccounts/powerful"))
	n.refusedWhole(t, "path", v1.ReasonInvalidSpec, "is not valid: it may not contain '/'")
	if events := mark.Since(t, victim.by("powerful")); len(events) > 0 {
		t.Errorf("it was used: %v", events)
	}
}

// An older StageSet that has an object in its inventory is left to make it. None comes there that the account may not make:
// not because the release gives the account rights first that have nothing to do with it.
func TestNothingIsClaimedWithoutRights(t *testing.T) {
	n := shared(t).bareTenant(t)
	victim := n.suite.tenant(t)
	n.account(t, "squatter", "admin")
	mark := n.Audit(t)
	n.source(t, "squat", map[string]string{"a.yaml": documents(
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: gift}\n"+
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\n"+
			"subjects: [{kind: ServiceAccount, name: squatter, namespace: "+n.namespace+"}]\n",
		strings.Replace(configMap("web", "theirs"), "metadata: {", "metadata: {namespace: "+victim.namespace+", ", 1),
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: "+n.namespace+"-more}\n",
		"apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: laters.example.com}\n"+
			"spec: {group: example.com, scope: Cluster, names: {kind: Later, plural: laters}, versions: []}\n",
	)})
	n.stageSet(t, "squat", strings.ReplaceAll(oneStage("squat"), deployer, "squatter"))
	n.refusedWhole(t, "squat", v1.ReasonPermissionsMissing, "create, patch, delete configmaps in "+victim.namespace+" (web)",
		"create, patch, delete namespaces ("+n.namespace+"-more)",
		"create, patch, delete customresourcedefinitions.apiextensions.k8s.io (laters.example.com)")
	n.wroteNothing(t, mark)
	revision := victim.source(t, "app", map[string]string{"a.yaml": configMap("web", "ours")})
	victim.stageSet(t, "app", oneStage("app"))
	victim.waitReady(t, "app", "app", revision)
	victim.hasValue(t, "web", "ours")
}

// Who knows the digest of what somebody else releases, and writes it into the status of a source of his own, does not get it
// from the cache.
func TestDigestOfAnotherTenantGivesNothing(t *testing.T) {
	victim := shared(t).tenant(t)
	n := victim.suite.tenant(t)
	revision := victim.source(t, "app", map[string]string{"a.yaml": configMap("treasure", "canary-5Kq2")})
	victim.stageSet(t, "app", oneStage("app"))
	set := victim.waitReady(t, "app", "app", revision)
	archive := artifacts.TarGz(t, map[string]string{"a.yaml": configMap("a", "1")})
	own := n.Artifacts.Put("gitrepository", n.namespace, "app", archive)
	own.Digest = set.Status.Stages[0].Digest
	publish(t, n.Cluster, n.namespace, "app", own)
	mark := n.Audit(t)
	n.stageSet(t, "app", oneStage("app"))
	n.refusedWhole(t, "app", v1.ReasonArtifactFailed, "its digest is not "+own.Digest)
	n.wroteNothing(t, mark)
}

// Labels say whose an object is, and are nothing that a manifest can set: what is rendered with those of another StageSet is
// the own, and what somebody else has labelled so is not deleted by the one that the labels name.
func TestLabelsClaimNothing(t *testing.T) {
	victim := shared(t).tenant(t)
	n := victim.suite.tenant(t)
	labelled := func(name string) string {
		return strings.Replace(configMap(name, "1"), "metadata: {", fmt.Sprintf(
			"metadata: {labels: {%s: app, %s: %s, %s: app}, ", v1.LabelName, v1.LabelNamespace, victim.namespace, v1.LabelStage), 1)
	}
	first := victim.source(t, "app", map[string]string{"a.yaml": configMap("kept", "1")})
	victim.stageSet(t, "app", oneStage("app"))
	victim.waitReady(t, "app", "app", first)
	victim.applyIn(t, labelled("bystander"))

	revision := n.source(t, "claims", map[string]string{"a.yaml": labelled("claimed")})
	n.stageSet(t, "claims", oneStage("claims"))
	n.waitReady(t, "claims", "claims", revision)
	n.ownedBy(t, "claims", map[string][]client.Object{"app": {n.configMap("claimed")}})

	victim.delete(t, "app")
	victim.gone(t, "app")
	victim.absent(t, victim.configMap("kept"))
	victim.hasValue(t, "bystander", "1")
	n.hasValue(t, "claimed", "1")
}

// An account that is made again while a release waits has the rights that it is given now, and not those that it had.
func TestRecreatedAccountHasItsOwnRights(t *testing.T) {
	n := shared(t).bareTenant(t)
	n.account(t, deployer)
	n.grant(t, n.namespace, deployer, "ClusterRole", "edit")
	n.source(t, "app", map[string]string{"one/web.yaml": heldDeployment("web", "1"), "two/a.yaml": configMap("second", "1")})
	n.stageSet(t, "app", "retryInterval: 1s"+twoStages("app"))
	n.wait(t, "app", phase("one", v1.StageVerifying))
	binding := cluster.Ref("rbac.authorization.k8s.io/v1", "RoleBinding", n.namespace, n.namespace+"-"+deployer+"-edit")
	account := cluster.Ref("v1", "ServiceAccount", n.namespace, deployer)
	for _, object := range []client.Object{binding, account.DeepCopy()} {
		if err := n.Client.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Client.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	n.request(t, "app", "now")
	n.wait(t, "app", handled("now"), cluster.Condition(v1.ConditionReady, "False"),
		messageHas("ServiceAccount "+n.namespace+"/"+deployer))
	var second corev1.ConfigMap
	err := n.Client.Get(t.Context(), client.ObjectKey{Namespace: n.namespace, Name: "second"}, &second)
	if !apierrors.IsNotFound(err) {
		t.Errorf("stage two was applied with rights that are gone: %v", err)
	}
}

// What somebody else says stays on the line that it is quoted in: no line of the log, and none of what kubectl prints, is
// another's, and no terminal does what it says.
func TestMessagesOfOthersStayOnTheirLine(t *testing.T) {
	n := shared(t).tenant(t)
	const forged = "time=forged level=ERROR msg=forged"
	n.saysOfSource(t, "app", "a\n"+forged+"\n---\nkind: \u001b[2J\u202eb: {c")
	n.stageSet(t, "app", saidOf("app"))
	message := n.waitRefused(t, "app", v1.ReasonSourceNotReady)
	if !strings.Contains(message, forged) {
		t.Errorf("the message does not quote the source: %q", message)
	}
	if strings.ContainsFunc(message, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }) {
		t.Errorf("the message has what is not to be seen: %q", message)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for line := range strings.Lines(n.reconciler.Output()) {
		if strings.HasPrefix(line, "time=forged") {
			t.Errorf("a line of the log is forged: %q", line)
		}
	}
}
