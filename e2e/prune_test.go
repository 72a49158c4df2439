package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// I4: nothing goes before the last stage is healthy, and what goes is exactly what was looked at: a policy of the cluster
// refuses every delete of the account that does not name UID and resourceVersion.
func TestWhatLeftIsDeletedAfterTheLastStageIsHealthy(t *testing.T) {
	n := shared(t).tenant(t)
	files := map[string]string{
		"one/settings.yaml": documents(configMap("stays", "1"), configMap("goes", "1")), "two/web.yaml": deployment("web", "1"),
	}
	first := n.source(t, "app", files)
	n.stageSet(t, "app", twoStages("app"))
	n.waitReady(t, "app", "app", first)
	n.restrict(t, restriction{
		operation: "DELETE", only: "request.userInfo.username == 'system:serviceaccount:" + n.namespace + ":" + deployer + "'",
		allow: "has(request.options.preconditions) && has(request.options.preconditions.resourceVersion)" +
			" && request.options.preconditions.uid == oldObject.metadata.uid",
		probe: probeDelete(n.configMap("goes")),
	})

	mark, goes := n.Audit(t), n.uid(t, n.configMap("goes"))
	files["one/settings.yaml"], files["two/web.yaml"] = configMap("stays", "2"), heldDeployment("web", "2")
	second := n.source(t, "app", files)
	n.wait(t, "app", n.revision("lastAttemptedRevisions", "app", second), phase("two", v1.StageVerifying))
	n.passWaits(t, "app")
	n.unchanged(t, n.configMap("goes"), goes)
	writes := []string{"patch configmaps/stays", "patch deployments/web"}
	if diff := cmp.Diff(writes, n.written(t, mark, deployer)); diff != "" {
		t.Errorf("writes while stage two is not healthy (-want +got):\n%s", diff)
	}

	n.ReleasePods(t, n.namespace)
	n.waitReady(t, "app", "app", second)
	n.absent(t, n.configMap("goes"))
	if diff := cmp.Diff(append(writes, "delete configmaps/goes"), n.written(t, mark, deployer)); diff != "" {
		t.Errorf("writes once it is (-want +got):\n%s", diff)
	}
	recorded := []string{"one as deployer: ConfigMap stays", "two as deployer: Deployment web"}
	if diff := cmp.Diff(recorded, n.inventory(t, "app")); diff != "" {
		t.Errorf("inventory (-want +got):\n%s", diff)
	}
}

// T-67: an object that moves to another stage stays the same object; a volume's claim would lose its data.
func TestMovedObjectsStayTheSame(t *testing.T) {
	n := shared(t).tenant(t)
	n.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  hostPath: {path: /nowhere}
  claimRef: {namespace: %[1]s, name: data}`, n.namespace))
	n.deleteAfter(t, cluster.Ref("v1", "PersistentVolume", "", n.namespace))
	claim := fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: "", volumeName: %s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`, n.namespace)
	first := n.source(t, "app", map[string]string{"one/data.yaml": claim, "two/settings.yaml": configMap("settings", "1")})
	n.stageSet(t, "app", twoStages("app"))
	n.waitReady(t, "app", "app", first)

	mark, data := n.Audit(t), cluster.Ref("v1", "PersistentVolumeClaim", n.namespace, "data")
	dataUID, settingsUID := n.uid(t, data), n.uid(t, n.configMap("settings"))
	second := n.source(t, "app", map[string]string{"one/settings.yaml": configMap("settings", "1"), "two/data.yaml": claim})
	n.waitReady(t, "app", "app", second)
	n.unchanged(t, data, dataUID)
	n.unchanged(t, n.configMap("settings"), settingsUID)
	if deleted := n.deleted(t, mark, deployer); len(deleted) > 0 {
		t.Errorf("deleted: %v", deleted)
	}
	n.ownedBy(t, "app", map[string][]client.Object{"one": {n.configMap("settings")}, "two": {data}})
	recorded := []string{"one as deployer: ConfigMap settings", "two as deployer: PersistentVolumeClaim data"}
	if diff := cmp.Diff(recorded, n.inventory(t, "app")); diff != "" {
		t.Errorf("inventory (-want +got):\n%s", diff)
	}
}

// T-70: the opt-out counts wherever it is, on the live object or in the manifest, when an object leaves the release and
// when the StageSet is deleted.
func TestAnnotationKeepsAnObject(t *testing.T) {
	n := shared(t).tenant(t)
	rendered := func(name string) string {
		return strings.Replace(configMap(name, "1"), "{name: "+name+"}",
			"{name: "+name+", annotations: {"+v1.AnnotationPrune+": disabled}}", 1)
	}
	first := n.source(t, "app", map[string]string{
		"leave.yaml":  documents(configMap("live-leaves", "1"), rendered("rendered-leaves"), configMap("leaves", "1")),
		"delete.yaml": documents(configMap("live-stays", "1"), rendered("rendered-stays"), configMap("stays", "1")),
	})
	n.stageSet(t, "app", oneStage("app"))
	n.waitReady(t, "app", "app", first)
	kept := map[string]types.UID{}
	for _, name := range []string{"live-leaves", "rendered-leaves", "live-stays", "rendered-stays"} {
		if strings.HasPrefix(name, "live") {
			n.patch(t, n.configMap(name), `{"metadata":{"annotations":{"`+v1.AnnotationPrune+`":"disabled"}}}`)
		}
		kept[name] = n.uid(t, n.configMap(name))
	}

	second := n.source(t, "app", map[string]string{
		"delete.yaml": documents(configMap("live-stays", "1"), rendered("rendered-stays"), configMap("stays", "1")),
	})
	n.waitReady(t, "app", "app", second)
	n.absent(t, n.configMap("leaves"))
	n.delete(t, "app")
	n.gone(t, "app")
	n.absent(t, n.configMap("stays"))
	for name, uid := range kept {
		n.unchanged(t, n.configMap(name), uid)
	}
}

// T-70: what the manifest said when it was applied counts, also if somebody takes the annotation off the live object and the
// manifest is gone before it is put back.
func TestAnnotationOfTheManifestOutlivesTheLiveOne(t *testing.T) {
	n := shared(t).tenant(t)
	kept := strings.Replace(configMap("kept", "1"), "{name: kept}",
		"{name: kept, annotations: {"+v1.AnnotationPrune+": disabled}}", 1)
	first := n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1"), "kept.yaml": kept})
	n.stageSet(t, "app", oneStage("app"))
	n.waitReady(t, "app", "app", first)
	uid := n.uid(t, n.configMap("kept"))

	n.patch(t, n.ref("app"), `{"spec":{"suspend":true}}`)
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "True", v1.ReasonSuspended))
	n.patch(t, n.configMap("kept"), `{"metadata":{"annotations":null}}`)
	second := n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	n.patch(t, n.ref("app"), `{"spec":{"suspend":false}}`)
	n.waitReady(t, "app", "app", second)
	n.unchanged(t, n.configMap("kept"), uid)
}

// What the spec says of prune now counts, not what it said when the stage was last written.
func TestStageWithoutPruneKeepsWhatLeavesIt(t *testing.T) {
	n := shared(t).tenant(t)
	first := n.source(t, "app", map[string]string{"one/a.yaml": configMap("a", "1"), "one/b.yaml": configMap("b", "1"),
		"two/c.yaml": configMap("c", "1"), "two/d.yaml": configMap("d", "1")})
	n.stageSet(t, "app", twoStages("app"))
	n.waitReady(t, "app", "app", first)
	uids := map[string]types.UID{}
	for _, name := range []string{"a", "b"} {
		uids[name] = n.uid(t, n.configMap(name))
	}

	// prune: false arrives together with the removal, and nothing else of the stage changes.
	n.patch(t, cluster.Ref(v1.GroupVersion.String(), "StageSet", n.namespace, "app"), `{"spec":{"suspend":true}}`)
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "True", v1.ReasonSuspended))
	second := n.source(t, "app", map[string]string{"one/a.yaml": configMap("a", "1"), "two/c.yaml": configMap("c", "1")})
	n.stageSet(t, "app", strings.Replace(twoStages("app"), "{name: one,", "{name: one, prune: false,", 1)+"suspend: false\n")
	n.waitReady(t, "app", "app", second)
	n.unchanged(t, n.configMap("b"), uids["b"])
	n.absent(t, n.configMap("d"))

	n.delete(t, "app")
	n.gone(t, "app")
	n.absent(t, n.configMap("c"))
	for name, uid := range uids {
		n.unchanged(t, n.configMap(name), uid)
	}
}

// T-69: labels prove nothing; what is deleted is what an inventory names.
func TestCopyOfAnObjectIsNotTouched(t *testing.T) {
	n := shared(t).tenant(t)
	files := map[string]string{"a.yaml": configMap("leaves", "1"), "b.yaml": configMap("stays", "1")}
	first := n.source(t, "app", files)
	n.stageSet(t, "app", oneStage("app"))
	n.waitReady(t, "app", "app", first)
	uids := map[string]types.UID{}
	for _, name := range []string{"leaves", "stays"} {
		original := n.live(t, n.configMap(name))
		replica := n.configMap(name + "-copy")
		replica.SetLabels(original.GetLabels())
		replica.SetAnnotations(original.GetAnnotations())
		if err := n.Client.Create(t.Context(), replica); err != nil {
			t.Fatal(err)
		}
		if replica.GetLabels()[v1.LabelName] != "app" {
			t.Fatalf("the copy has labels %v, so nothing could take it for one of the StageSet's", replica.GetLabels())
		}
		uids[replica.GetName()] = replica.GetUID()
	}
	delete(files, "a.yaml")
	second := n.source(t, "app", files)
	n.waitReady(t, "app", "app", second)
	n.absent(t, n.configMap("leaves"))
	n.delete(t, "app")
	n.gone(t, "app")
	n.absent(t, n.configMap("stays"))
	for name, uid := range uids {
		n.unchanged(t, n.configMap(name), uid)
	}
}

// An object that somebody deleted and made again under the same name is not the one that was applied.
func TestAnotherObjectOfTheNameIsNotDeleted(t *testing.T) {
	n := shared(t).tenant(t)
	files := map[string]string{"a.yaml": configMap("taken", "1"), "b.yaml": configMap("stays", "1")}
	first := n.source(t, "app", files)
	n.stageSet(t, "app", oneStage("app"))
	n.waitReady(t, "app", "app", first)
	if err := n.Client.Delete(t.Context(), n.configMap("taken")); err != nil {
		t.Fatal(err)
	}
	n.Apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: taken, namespace: "+n.namespace+"}}")
	uid := n.uid(t, n.configMap("taken"))
	delete(files, "a.yaml")
	second := n.source(t, "app", files)
	n.waitReady(t, "app", "app", second)
	n.unchanged(t, n.configMap("taken"), uid)
}

// T-64: a delete that is denied leaves no orphan: the entry stays, the status names it, and it is tried again.
func TestDeniedDeleteIsTriedUntilItPasses(t *testing.T) {
	n := shared(t).tenant(t)
	first := n.source(t, "app", map[string]string{"all.yaml": documents(configMap("denied-1", "1"), configMap("denied-2", "1"),
		configMap("denied-3", "1"), configMap("goes", "1"), configMap("stays", "1"))})
	n.stageSet(t, "app", "retryInterval: 1s"+oneStage("app"))
	n.waitReady(t, "app", "app", first)
	lift := n.restrict(t, restriction{
		operation: "DELETE", only: "request.name.startsWith('denied-')", allow: "false",
		probe: probeDelete(n.configMap("denied-1")),
	})

	second := n.source(t, "app", map[string]string{"all.yaml": configMap("stays", "1")})
	n.wait(t, "app", n.revision("lastAttemptedRevisions", "app", second))
	message := n.waitRefused(t, "app", v1.ReasonPruneFailed)
	for _, name := range []string{"denied-1", "denied-2", "denied-3"} {
		if want := "ConfigMap " + n.namespace + "/" + name + ": "; !strings.Contains(message, want) {
			t.Errorf("message %q does not contain %q", message, want)
		}
	}
	if !strings.Contains(message, refusal) || strings.Contains(message, "goes") {
		t.Errorf("message %q: want what the policy says, and nothing of what is gone", message)
	}
	n.waitEvent(t, "app", "Warning", v1.ReasonPruneFailed, "denied-2")
	n.absent(t, n.configMap("goes"))
	recorded := []string{"app as deployer: ConfigMap denied-1", "app as deployer: ConfigMap denied-2",
		"app as deployer: ConfigMap denied-3", "app as deployer: ConfigMap stays"}
	if diff := cmp.Diff(recorded, n.inventory(t, "app")); diff != "" {
		t.Errorf("inventory (-want +got):\n%s", diff)
	}

	lift()
	n.waitReady(t, "app", "app", second)
	n.absent(t, n.configMap("denied-1"), n.configMap("denied-2"), n.configMap("denied-3"))
	if diff := cmp.Diff(recorded[3:], n.inventory(t, "app")); diff != "" {
		t.Errorf("inventory in the end (-want +got):\n%s", diff)
	}
}

// What has left the release and is on its way out has not drifted, whoever lets go of it while a newer release fails.
func TestWhatIsBeingDeletedHasNotDrifted(t *testing.T) {
	n := shared(t).tenant(t)
	first := n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1"), "b.yaml": configMap("b", "1")})
	n.stageSet(t, "app", "retryInterval: 1s"+oneStage("app"))
	n.waitReady(t, "app", "app", first)
	n.hold(t, n.configMap("b"))
	n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	n.wait(t, "app", messageHas("waits for the deletion of ConfigMap "+n.namespace+"/b"))

	n.source(t, "app", map[string]string{"a.yaml": "}"})
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonBuildFailed))
	n.release(t, n.configMap("b"))
	n.WaitGone(t, n.configMap("b"))
	n.asked(t, "app", "look", v1.ReasonBuildFailed)
	n.noEvent(t, "app", v1.EventDriftDetected)
}

// T-65: what a failed apply has made, and what it may have made, is recorded, and goes when it leaves.
func TestObjectsOfAFailedApplyAreDeletedWhenTheyLeave(t *testing.T) {
	n := shared(t).tenant(t)
	n.refuseToMake(t)
	service := "apiVersion: v1\nkind: Service\nmetadata: {name: refused}\nspec: {ports: [{port: 80}]}\n"
	n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1"), "refused.yaml": service})
	n.stageSet(t, "app", oneStage("app"))
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonApplyFailed), messageHas(refusal),
		messageHas("Service "+n.namespace+"/refused (refused.yaml:1)"))
	n.uid(t, n.configMap("a"))
	recorded := []string{"app as deployer: ConfigMap a", "app as deployer: Service refused"}
	if diff := cmp.Diff(recorded, n.inventory(t, "app")); diff != "" {
		t.Errorf("inventory after the failed apply (-want +got):\n%s", diff)
	}

	second := n.source(t, "app", map[string]string{"b.yaml": configMap("b", "1")})
	n.waitReady(t, "app", "app", second)
	n.absent(t, n.configMap("a"), cluster.Ref("v1", "Service", n.namespace, "refused"))
	if diff := cmp.Diff([]string{"app as deployer: ConfigMap b"}, n.inventory(t, "app")); diff != "" {
		t.Errorf("inventory in the end (-want +got):\n%s", diff)
	}
}

// An object of somebody else that a release would have adopted, and never did, is not ours to delete.
func TestObjectThatWasNeverAdoptedIsNotDeleted(t *testing.T) {
	n := shared(t).tenant(t)
	n.refuseToMake(t)
	n.Apply(t, objectYAML(t, "v1", "Service", n.namespace, "theirs", "{ports: [{port: 1}]}"))
	theirs := cluster.Ref("v1", "Service", n.namespace, "theirs")
	uid := n.uid(t, theirs)
	n.source(t, "app", map[string]string{
		"config.yaml":  "apiVersion: v1\nkind: Secret\nmetadata: {name: refused}\n",
		"service.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: theirs}\nspec: {ports: [{port: 1}]}\n",
	})
	n.stageSet(t, "app", oneStage("app"))
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonApplyFailed), messageHas(refusal))
	recorded := []string{"app as deployer: Secret refused", "app as deployer: Service theirs"}
	if diff := cmp.Diff(recorded, n.inventory(t, "app")); diff != "" {
		t.Errorf("inventory after the failed apply (-want +got):\n%s", diff)
	}
	managers := n.live(t, theirs).GetManagedFields()
	applied := func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == v1.FieldManager(n.namespace, "app")
	}
	if slices.ContainsFunc(managers, applied) {
		t.Fatalf("the Service was applied, so that this test shows nothing: %v", managers)
	}

	second := n.source(t, "app", map[string]string{"b.yaml": configMap("b", "1")})
	n.waitReady(t, "app", "app", second)
	n.unchanged(t, theirs, uid)
}

// T-111: what a stage with an account of its own has applied is deleted as that account, also when the stage is gone.
func TestRemovedStageIsTornDownAsItsOwnAccount(t *testing.T) {
	n := shared(t).bareTenant(t)
	n.account(t, "web")
	n.account(t, "db-admin")
	for account, resource := range map[string]string{"web": "configmaps", "db-admin": "secrets"} {
		n.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: %[1]s, namespace: %[2]s}
rules:
- {apiGroups: [""], resources: [%[3]s], verbs: [get, list, create, patch, delete]}
- {apiGroups: [source.toolkit.fluxcd.io], resources: [gitrepositories], verbs: [get]}`, account, n.namespace, resource))
		n.grant(t, n.namespace, account, "Role", account)
	}
	revision := n.source(t, "app", map[string]string{
		"db/secret.yaml":  "apiVersion: v1\nkind: Secret\nmetadata: {name: db}\nstringData: {password: canary}\n",
		"web/config.yaml": configMap("web", "1"),
	})
	web := "- {name: web, path: web, sourceRef: {kind: GitRepository, name: app}}\n"
	db := "- {name: db, path: db, serviceAccountName: db-admin, sourceRef: {kind: GitRepository, name: app}}\n"
	n.stageSet(t, "app", "serviceAccountName: web\nstages:\n"+db+web)
	n.waitReady(t, "app", "app", revision)
	if diff := cmp.Diff([]string{"db as db-admin: Secret db", "web as web: ConfigMap web"}, n.inventory(t, "app")); diff != "" {
		t.Errorf("inventory (-want +got):\n%s", diff)
	}

	mark := n.Audit(t)
	n.stageSet(t, "app", "serviceAccountName: web\nstages:\n"+web)
	n.waitReady(t, "app", "app", revision)
	n.absent(t, cluster.Ref("v1", "Secret", n.namespace, "db"))
	if diff := cmp.Diff([]string{"web as web: ConfigMap web"}, n.inventory(t, "app")); diff != "" {
		t.Errorf("inventory without the stage (-want +got):\n%s", diff)
	}
	n.delete(t, "app")
	n.gone(t, "app")
	for account, want := range map[string][]string{"web": {"configmaps/web"}, "db-admin": {"secrets/db"}} {
		if diff := cmp.Diff(want, n.deleted(t, mark, account)); diff != "" {
			t.Errorf("deleted as %s (-want +got):\n%s", account, diff)
		}
	}
}

// An object whose API version is no longer served still exists in another one.
func TestObjectOfAVersionThatIsNoLongerServedIsDeleted(t *testing.T) {
	n := shared(t).tenant(t)
	gadget := n.gadgets(t)
	n.serve(t, gadget, "v1", "v1beta1")
	revision := n.source(t, "app", map[string]string{"gadget.yaml": inVersion("v1beta1", gadget.manifest("old"))})
	n.stageSet(t, "app", oneStage("app"))
	n.condition(t, gadget.ref(n.namespace, "old"), "Ready", "True", "Wound", "it ticks")
	n.waitReady(t, "app", "app", revision)

	n.drop(t, gadget, cluster.Ref(gadget.group+"/v1beta1", "Gadget", n.namespace, "old"))
	n.delete(t, "app")
	n.gone(t, "app")
	n.absent(t, gadget.ref(n.namespace, "old"))
}
