package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// ref is a StageSet of the tenant.
func (n *tenant) ref(stageSet string) *unstructured.Unstructured {
	return cluster.Ref(v1.GroupVersion.String(), "StageSet", n.namespace, stageSet)
}

// threeStages applies the folders one, two and three of the source app as deployer.
var threeStages = twoStages("app") + "- {name: three, path: three, sourceRef: {kind: GitRepository, name: app}}\n"

// T-73, T-113: whatever kubectl is told, a stage goes when the one after it is gone, and not when its deletion has begun.
func TestDeletionGoesThroughTheStagesInReverse(t *testing.T) {
	for _, cascade := range []string{"background", "foreground", "orphan"} {
		t.Run(cascade, func(t *testing.T) {
			n := shared(t).tenant(t)
			revision := n.source(t, "app", map[string]string{
				"one/a.yaml": configMap("one", "1"), "two/b.yaml": configMap("two", "1"),
				"three/c.yaml": documents(configMap("three", "1"), deployment("web", "1")),
			})
			n.stageSet(t, "app", threeStages)
			n.waitReady(t, "app", "app", revision)
			mark, uid := n.Audit(t), n.uid(t, n.configMap("one"))
			n.hold(t, n.configMap("two"))
			if output, err := n.kubectl(t, "", "delete", "stageset", "app", "--namespace", n.namespace,
				"--cascade="+cascade, "--wait=false"); err != nil {
				t.Fatalf("%v: %s", err, output)
			}

			n.WaitFor(t, n.configMap("two"), beingDeleted)
			n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonTerminating),
				messageHas("waits for the deletion of ConfigMap "+n.namespace+"/two"))
			n.request(t, "app", "look")
			n.wait(t, "app", handled("look"))
			n.unchanged(t, n.configMap("one"), uid)
			n.absent(t, n.configMap("three"), cluster.Ref("apps/v1", "Deployment", n.namespace, "web"))
			if diff := cmp.Diff([]string{"one as deployer: ConfigMap one", "two as deployer: ConfigMap two"},
				n.inventory(t, "app")); diff != "" {
				t.Errorf("inventory while stage two is held (-want +got):\n%s", diff)
			}

			n.release(t, n.configMap("two"))
			n.gone(t, "app")
			n.absent(t, n.configMap("one"), n.configMap("two"))
			order := []string{"deployments/web", "configmaps/three", "configmaps/two", "configmaps/one"}
			if diff := cmp.Diff(order, n.deleted(t, mark, deployer)); diff != "" {
				t.Errorf("deletes (-want +got):\n%s", diff)
			}
		})
	}
}

// A stage whose deletion takes longer than its timeout no longer holds back the others, and is not forgotten.
func TestStageThatDoesNotGoHoldsTheOthersForItsTimeoutOnly(t *testing.T) {
	n := shared(t).tenant(t)
	revision := n.source(t, "app", map[string]string{"one/a.yaml": configMap("one", "1"), "two/b.yaml": configMap("two", "1")})
	n.stageSet(t, "app", "timeout: 1s"+twoStages("app"))
	n.waitReady(t, "app", "app", revision)
	n.hold(t, n.configMap("two"))
	n.delete(t, "app")
	n.WaitGone(t, n.configMap("one"))
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonTerminating))
	// The object is gone before the inventory says so.
	cluster.Eventually(t, func(ctx context.Context) error {
		recorded, err := n.recorded(ctx, "app")
		if diff := cmp.Diff([]string{"two as deployer: ConfigMap two"}, recorded); err == nil && diff != "" {
			return fmt.Errorf("inventory (-want +got):\n%s", diff)
		}
		return err
	})
	n.release(t, n.configMap("two"))
	n.gone(t, "app")
}

// T-72: what decides is deletionPolicy.
func TestSuspendedStageSetDeletesWhatItApplied(t *testing.T) {
	n := shared(t).tenant(t)
	revision := n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	n.stageSet(t, "app", oneStage("app"))
	n.waitReady(t, "app", "app", revision)
	n.stageSet(t, "app", "suspend: true"+oneStage("app"))
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "True", v1.ReasonSuspended))
	n.delete(t, "app")
	n.gone(t, "app")
	n.absent(t, n.configMap("a"))
}

func TestDeletionPolicyOrphanKeepsEverything(t *testing.T) {
	n := shared(t).tenant(t)
	revision := n.source(t, "app", map[string]string{"one/a.yaml": configMap("a", "1"), "two/b.yaml": configMap("b", "1")})
	n.stageSet(t, "app", "deletionPolicy: Orphan"+twoStages("app"))
	n.waitReady(t, "app", "app", revision)
	a, b := n.uid(t, n.configMap("a")), n.uid(t, n.configMap("b"))
	mark := n.Audit(t)
	n.delete(t, "app")
	n.gone(t, "app")
	n.unchanged(t, n.configMap("a"), a)
	n.unchanged(t, n.configMap("b"), b)
	if deleted := n.deleted(t, mark, deployer); len(deleted) > 0 {
		t.Errorf("deleted: %v", deleted)
	}
}

// Whoever sees that a deletion goes wrong can still stop it.
func TestDeletionPolicyOrphanStopsADeletion(t *testing.T) {
	n := shared(t).tenant(t)
	revision := n.source(t, "app", map[string]string{"one/a.yaml": configMap("a", "1"), "two/b.yaml": configMap("b", "1")})
	n.stageSet(t, "app", twoStages("app"))
	n.waitReady(t, "app", "app", revision)
	a := n.uid(t, n.configMap("a"))
	n.hold(t, n.configMap("b"))
	n.delete(t, "app")
	n.WaitFor(t, n.configMap("b"), beingDeleted)
	n.patch(t, n.ref("app"), `{"spec":{"deletionPolicy":"Orphan"}}`)
	n.gone(t, "app")
	n.unchanged(t, n.configMap("a"), a)
}

// ownIdentity is an account, with a role and a binding, for a release to bring itself.
func (n *tenant) ownIdentity() (manifest string, refs []*unstructured.Unstructured) {
	manifest = `apiVersion: v1
kind: ServiceAccount
metadata: {name: ` + deployer + `}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: own}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list, patch, create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: own}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: own}
subjects: [{kind: ServiceAccount, name: ` + deployer + `, namespace: ` + n.namespace + `}]
`
	return manifest, []*unstructured.Unstructured{
		cluster.Ref("rbac.authorization.k8s.io/v1", "Role", n.namespace, "own"),
		cluster.Ref("rbac.authorization.k8s.io/v1", "RoleBinding", n.namespace, "own"),
		cluster.Ref("v1", "ServiceAccount", n.namespace, deployer),
	}
}

// T-02: an account, its role and its binding that the release itself applied go last, and not before everything else is
// really gone, however long that takes; nothing is forbidden on the way and nothing is left.
func TestAccountOfTheReleaseItselfGoesLast(t *testing.T) {
	n := shared(t).bareTenant(t)
	n.account(t, deployer, "admin")
	manifest, identity := n.ownIdentity()
	revision := n.source(t, "app", map[string]string{
		"one/all.yaml": documents(manifest, configMap("a", "1"), configMap("b", "1")), "two/c.yaml": configMap("held", "1"),
	})
	n.stageSet(t, "app", "timeout: 1s"+twoStages("app"))
	n.waitReady(t, "app", "app", revision)
	n.hold(t, n.configMap("held"))
	var uids []types.UID
	for _, ref := range identity {
		uids = append(uids, n.uid(t, ref))
	}

	mark := n.Audit(t)
	n.delete(t, "app")
	n.WaitGone(t, n.configMap("a")) // stage two is overdue
	n.request(t, "app", "look")
	n.wait(t, "app", handled("look"), cluster.Condition(v1.ConditionReady, "False", v1.ReasonTerminating))
	for i, ref := range identity {
		n.unchanged(t, ref, uids[i])
	}
	n.release(t, n.configMap("held"))
	n.gone(t, "app")
	n.absent(t, append(identity, n.configMap("a"), n.configMap("b"), n.configMap("held"))...)
	for _, event := range mark.Since(t, n.by(deployer)) {
		if event.Code == http.StatusForbidden {
			t.Errorf("forbidden: %s", event)
		}
	}
	order := n.deleted(t, mark, deployer)
	if len(order) != 6 {
		t.Fatalf("deletes %v, want six", order)
	}
	last := []string{"roles/own", "rolebindings/own", "serviceaccounts/" + deployer}
	if diff := cmp.Diff(last, order[3:]); diff != "" {
		t.Errorf("the last deletes (-want +got):\n%s", diff)
	}
	if log := n.log(); strings.Contains(log, "leaves behind") {
		t.Errorf("something is said to be left:\n%s", log)
	}
}

// The finalizer comes with the first write: before it, nothing needs it, and a StageSet must not need the reconciler to go.
func TestStageSetThatNeverAppliedGoesAtOnce(t *testing.T) {
	n := shared(t).tenant(t)
	n.stageSet(t, "app", oneStage("missing"))
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonSourceNotFound))
	if finalizers := n.live(t, n.ref("app")).GetFinalizers(); len(finalizers) > 0 {
		t.Errorf("finalizers %v, want none", finalizers)
	}
	n.delete(t, "app")
	n.absent(t, n.ref("app"))
}

// An account that is really gone can delete nothing any more; somebody has to be told what stays.
func TestMissingAccountReleasesWithAListOfWhatStays(t *testing.T) {
	n := shared(t).tenant(t)
	revision := n.source(t, "app", map[string]string{"one/a.yaml": configMap("a", "1"), "two/b.yaml": configMap("b", "1")})
	n.stageSet(t, "app", "retryInterval: 1s"+twoStages("app"))
	n.waitReady(t, "app", "app", revision)
	a, b := n.uid(t, n.configMap("a")), n.uid(t, n.configMap("b"))
	if err := n.Client.Delete(t.Context(), cluster.Ref("v1", "ServiceAccount", n.namespace, deployer)); err != nil {
		t.Fatal(err)
	}
	// The API server takes the token of an account that is gone for a few more seconds.
	cluster.Eventually(t, func(ctx context.Context) error {
		n.request(t, "app", time.Now().String())
		live := n.ref("app")
		if err := n.Client.Get(ctx, client.ObjectKeyFromObject(live), live); err != nil {
			return err
		}
		return cluster.Condition(v1.ConditionReady, "False", v1.ReasonServiceAccountNotFound)(live)
	})
	n.delete(t, "app")
	n.gone(t, "app")
	n.waitEvent(t, "app", "Warning", "Orphaned", "because the account that applied them is gone: ConfigMap "+n.namespace+"/b, "+
		"ConfigMap "+n.namespace+"/a")
	n.unchanged(t, n.configMap("a"), a)
	n.unchanged(t, n.configMap("b"), b)
}

// T-74, T-17: a delete is made as the tenant or not at all; what is missing is named, and giving it ends the deletion.
func TestForbiddenDeletionEndsWhenItIsAllowed(t *testing.T) {
	n := shared(t).bareTenant(t)
	n.account(t, deployer, "view")
	role := func(verbs string) {
		n.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: configmaps, namespace: %s}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [%s]}]`, n.namespace, verbs))
	}
	role("get, list, create, patch, delete")
	n.grant(t, n.namespace, deployer, "Role", "configmaps")
	revision := n.source(t, "app", map[string]string{"one/a.yaml": configMap("a", "1"), "two/b.yaml": configMap("b", "1")})
	n.stageSet(t, "app", "retryInterval: 1s"+twoStages("app"))
	n.waitReady(t, "app", "app", revision)
	a, b := n.uid(t, n.configMap("a")), n.uid(t, n.configMap("b"))

	role("get, list, create, patch")
	n.delete(t, "app")
	message := n.waitRefused(t, "app", v1.ReasonPermissionsMissing)
	for _, name := range []string{"a", "b"} { // all stages are tried
		want := fmt.Sprintf(`ConfigMap %[1]s/%[2]s: configmaps "%[2]s" is forbidden: `+
			`User "system:serviceaccount:%[1]s:%[3]s" cannot delete`, n.namespace, name, deployer)
		if !strings.Contains(message, want) {
			t.Errorf("message %q does not contain %q", message, want)
		}
	}
	n.wait(t, "app", cluster.Condition(v1.ConditionStalled, "True", v1.ReasonPermissionsMissing))
	n.unchanged(t, n.configMap("a"), a)
	n.unchanged(t, n.configMap("b"), b)

	role("get, list, create, patch, delete")
	n.gone(t, "app")
	n.absent(t, n.configMap("a"), n.configMap("b"))
}

// What is forbidden for longer than --max-teardown-wait is given up, and listed.
func TestForbiddenDeletionIsGivenUp(t *testing.T) {
	s := setup(t)
	s.ownReconciler(t, "--max-teardown-wait=1s")
	n := s.bareTenant(t)
	n.account(t, deployer, "edit")
	revision := n.source(t, "app", map[string]string{"one/a.yaml": configMap("a", "1"), "two/b.yaml": configMap("b", "1")})
	n.stageSet(t, "app", "retryInterval: 1s"+twoStages("app"))
	n.waitReady(t, "app", "app", revision)
	a, b := n.uid(t, n.configMap("a")), n.uid(t, n.configMap("b"))
	n.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: view, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: ServiceAccount, name: %[2]s, namespace: %[1]s}]`, n.namespace, deployer))
	edit := cluster.Ref("rbac.authorization.k8s.io/v1", "RoleBinding", n.namespace, n.namespace+"-"+deployer+"-edit")
	if err := n.Client.Delete(t.Context(), edit); err != nil {
		t.Fatal(err)
	}

	n.delete(t, "app")
	n.gone(t, "app")
	n.waitEvent(t, "app", "Warning", "Orphaned", "cannot delete ConfigMap "+n.namespace+"/b: ")
	n.waitEvent(t, "app", "Warning", "Orphaned", ": ConfigMap "+n.namespace+"/a, ConfigMap "+n.namespace+"/b")
	n.unchanged(t, n.configMap("a"), a)
	n.unchanged(t, n.configMap("b"), b)
}

// Somebody who takes the finalizer away has let go; the inventories must not hang, and the namespace with them.
func TestStageSetWhoseFinalizerWasTakenAwayLeavesNothingHanging(t *testing.T) {
	n := shared(t).tenant(t)
	revision := n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	n.stageSet(t, "app", oneStage("app"))
	n.waitReady(t, "app", "app", revision)
	n.hold(t, n.configMap("a"))
	n.delete(t, "app")
	n.WaitFor(t, n.configMap("a"), beingDeleted)
	n.patch(t, n.ref("app"), `{"metadata":{"finalizers":null}}`)
	n.WaitGone(t, n.ref("app"))
	n.waitEvent(t, "app", "Warning", "Orphaned", "ConfigMap "+n.namespace+"/a")
	n.noInventory(t)
}

// T-01: a namespace that is deleted with everything in it, account and binding included, does not wait for us, and what
// stays elsewhere is said where it can still be said: on the Namespace.
func TestDeletedNamespaceDoesNotHang(t *testing.T) {
	s := shared(t)
	n, other := s.tenant(t), s.bareTenant(t)
	n.grant(t, other.namespace, deployer, "ClusterRole", "edit")
	elsewhere := strings.Replace(configMap("elsewhere", "1"), "{name: elsewhere}",
		"{name: elsewhere, namespace: "+other.namespace+"}", 1)
	revision := n.source(t, "app", map[string]string{"one/a.yaml": elsewhere, "two/b.yaml": configMap("b", "1")})
	n.stageSet(t, "app", twoStages("app"))
	n.waitReady(t, "app", "app", revision)
	uid := n.uid(t, other.configMap("elsewhere"))

	namespace := cluster.Ref("v1", "Namespace", "", n.namespace)
	if err := n.Client.Delete(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	n.WaitGone(t, namespace)
	n.waitEventOnNamespace(t, "Warning", "Orphaned",
		"because its namespace is being deleted: ConfigMap "+other.namespace+"/elsewhere")
	other.unchanged(t, other.configMap("elsewhere"), uid)
}

// T-71: a release that brings the namespace that it is in leaves it, and everything else in it, where it is.
func TestOwnNamespaceIsNotDeleted(t *testing.T) {
	n := shared(t).tenant(t)
	n.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: %[1]s}
rules: [{apiGroups: [""], resources: [namespaces], resourceNames: [%[1]s], verbs: [get, patch, delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}
subjects: [{kind: ServiceAccount, name: %[2]s, namespace: %[1]s}]`, n.namespace, deployer))
	for _, kind := range []string{"ClusterRoleBinding", "ClusterRole"} {
		n.deleteAfter(t, cluster.Ref("rbac.authorization.k8s.io/v1", kind, "", n.namespace))
	}
	own := cluster.Ref("v1", "Namespace", "", n.namespace)
	uid := n.uid(t, own)
	files := map[string]string{
		"home.yaml": "{apiVersion: v1, kind: Namespace, metadata: {name: " + n.namespace + "}}\n", "a.yaml": configMap("a", "1"),
	}
	first := n.source(t, "app", files)
	n.stageSet(t, "app", oneStage("app"))
	n.waitReady(t, "app", "app", first)
	n.delete(t, "app")
	n.gone(t, "app")
	n.waitEvent(t, "app", "Warning", v1.EventOrphaned,
		"because it would take the StageSet, or the product, with it: Namespace "+n.namespace)
	n.absent(t, n.configMap("a"))
	n.unchanged(t, own, uid)
}
