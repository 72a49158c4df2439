package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// oneStageWith is a StageSet's spec with one stage of the source app that has more fields.
func oneStageWith(fields string) string {
	return "serviceAccountName: " + deployer + "\n" +
		"stages: [{name: app, sourceRef: {kind: GitRepository, name: app}, " + fields + "}]\n"
}

// sealed is a ConfigMap whose data cannot be changed.
func sealed(name, value string) string {
	return configMap(name, value) + "immutable: true\n"
}

func service(spec string) string {
	return "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {" + spec + "}\n"
}

// heldJob has a Pod that does not become Ready before ReleasePods.
func heldJob(version string) string {
	return fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata: {name: work}
spec:
  template:
    metadata: {labels: {%s: "true"}}
    spec: {restartPolicy: Never, containers: [{name: app, image: "registry.invalid/app:%s"}]}
`, cluster.NotReady, version)
}

func claim(class string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\n"+
		"spec: {accessModes: [ReadWriteOnce], storageClassName: %s, resources: {requests: {storage: 1Gi}}}\n", class)
}

// become releases a manifest, waits until it is applied, and then offers another one. It returns the UID of the object, and
// the revision of the second.
func (n *tenant) become(t *testing.T, ref *unstructured.Unstructured, spec, before, after string) (types.UID, string) {
	t.Helper()
	first := n.source(t, "app", map[string]string{"app.yaml": before})
	n.stageSet(t, "app", spec)
	n.applied(t, "app", first)
	uid := n.uid(t, ref)
	return uid, n.source(t, "app", map[string]string{"app.yaml": after})
}

// T-48: a field that cannot be changed ends a release before its first write, and what would allow it is said. What is
// invalid as a new object too, and what would lose data, is never deleted.
func TestObjectThatCannotBeChangedIsNotTouched(t *testing.T) {
	for name, test := range map[string]struct {
		kind, object  string
		fields        string
		before, after string
		want          []string
	}{
		"nothing allows it": {
			kind: "Service", object: "web", fields: "path: ./",
			before: service("ports: [{port: 80}]"), after: service("clusterIP: None, ports: [{port: 80}]"),
			want: []string{"may not change once set", "set stages[].conflictPolicy"},
		},
		"a new one would be invalid too": {
			kind: "Service", object: "web", fields: "force: true",
			before: service("ports: [{port: 80}]"), after: service("ports: []"),
			want: []string{"spec.ports: Required value", "a new one would be refused too"},
		},
		"it asks never to be deleted": {
			kind: "ConfigMap", object: "a", fields: "force: true",
			before: strings.Replace(sealed("a", "1"), "metadata: {", "metadata: {annotations: {"+v1.AnnotationPrune+": disabled}, ", 1),
			after:  sealed("a", "2"),
			want:   []string{"the annotation " + v1.AnnotationPrune + ": disabled keeps it from being deleted and made anew"},
		},
		"data would be lost": {
			kind: "PersistentVolumeClaim", object: "data", fields: "force: true",
			before: claim("one"), after: claim("two"),
			want: []string{"only a rule of stages[].conflictPolicy with allowDataLoss"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := shared(t).tenant(t)
			ref := cluster.Ref("v1", test.kind, n.namespace, test.object)
			uid, _ := n.become(t, ref, oneStageWith(test.fields), test.before, documents(configMap("other", "1"), test.after))
			want := append(test.want, "stage app: "+test.kind+" "+n.namespace+"/"+test.object+" (app.yaml:6): ")
			predicates := []cluster.Predicate{cluster.Condition(v1.ConditionStalled, "True", v1.ReasonApplyFailed)}
			for _, text := range want {
				predicates = append(predicates, messageHas(text))
			}
			n.wait(t, "app", predicates...)
			n.unchanged(t, ref, uid)
			n.absent(t, n.configMap("other"))
		})
	}
}

// What the StageSet, or the manifest, allows to be made anew is; also where a policy of the cluster refuses the change
// (T-49).
func TestObjectIsMadeAnewWhereThatIsAllowed(t *testing.T) {
	for name, test := range map[string]struct {
		kind, object  string
		fields        string
		before, after string
	}{
		"force": {kind: "ConfigMap", object: "a", fields: "force: true", before: sealed("a", "1"), after: sealed("a", "2")},
		"a rule": {
			kind: "Service", object: "web",
			fields: "conflictPolicy: {rules: [{target: {kind: Secret}, action: KeepExisting}, " +
				"{target: {kind: Service}, action: Recreate}]}",
			before: service("ports: [{port: 80}]"), after: service("clusterIP: None, ports: [{port: 80}]"),
		},
		"a rule that allows loss": {
			kind: "PersistentVolumeClaim", object: "data",
			fields: "conflictPolicy: {rules: [{target: {name: data}, action: Recreate, allowDataLoss: true}]}",
			before: claim("one"), after: claim("two"),
		},
		"the annotation": {
			kind: "ConfigMap", object: "a", fields: "path: ./", before: sealed("a", "1"),
			after: strings.Replace(sealed("a", "2"), "metadata: {", "metadata: {annotations: {"+v1.AnnotationForce+": enabled}, ", 1),
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := shared(t).tenant(t)
			ref := cluster.Ref("v1", test.kind, n.namespace, test.object)
			uid, second := n.become(t, ref, oneStageWith(test.fields), test.before, test.after)
			n.applied(t, "app", second)
			if n.uid(t, ref) == uid {
				t.Errorf("%s %s is the same object", test.kind, test.object)
			}
			n.waitEvent(t, "app", corev1.EventTypeNormal, v1.EventRecreating, test.kind+" "+n.namespace+"/"+test.object)
		})
	}
}

// applied waits until nothing of a revision is left to be written.
func (n *tenant) applied(t *testing.T, name, revision string) {
	t.Helper()
	n.wait(t, name, n.revision("lastAttemptedRevisions", "app", revision), func(object *unstructured.Unstructured) error {
		if phase("app", v1.StageReady)(object) != nil {
			return phase("app", v1.StageVerifying)(object)
		}
		return nil
	})
}

// T-49: a policy of the cluster words what cannot be changed as it likes.
func TestChangeThatAPolicyRefusesIsMadeAnew(t *testing.T) {
	n := shared(t).tenant(t)
	first := n.source(t, "app", map[string]string{"app.yaml": configMap("fixed", "1")})
	n.stageSet(t, "app", oneStageWith("force: true"))
	n.waitReady(t, "app", "app", first)
	uid := n.uid(t, n.configMap("fixed"))
	n.restrict(t, restriction{
		operation: "UPDATE", only: "object.metadata.name == 'fixed'", allow: "object.data == oldObject.data",
		probe: func(ctx context.Context, as client.Client) error {
			probe := n.configMap("fixed")
			return as.Patch(ctx, probe, client.RawPatch(types.MergePatchType, []byte(`{"data":{"value":"probe"}}`)), client.DryRunAll)
		},
	})
	second := n.source(t, "app", map[string]string{"app.yaml": configMap("fixed", "2")})
	n.waitReady(t, "app", "app", second)
	n.hasValue(t, "fixed", "2")
	if n.uid(t, n.configMap("fixed")) == uid {
		t.Error("ConfigMap fixed is the same object")
	}
}

// What is kept is as it was, and Ready says so; it is asked about again, and nothing else is done to it.
func TestObjectThatCannotBeChangedIsKept(t *testing.T) {
	n := shared(t).tenant(t)
	first := n.source(t, "app", map[string]string{"app.yaml": documents(sealed("a", "1"), configMap("b", "1"))})
	n.stageSet(t, "app", oneStageWith("conflictPolicy: {default: KeepExisting}"))
	n.waitReady(t, "app", "app", first)
	uid := n.uid(t, n.configMap("a"))
	second := n.source(t, "app", map[string]string{"app.yaml": documents(sealed("a", "2"), configMap("b", "2"))})
	n.waitReady(t, "app", "app", second)
	n.wait(t, "app", messageHas("kept as it is: ConfigMap "+n.namespace+"/a"))
	n.hasValue(t, "b", "2")
	n.hasValue(t, "a", "1")
	n.unchanged(t, n.configMap("a"), uid)
	mark := n.Audit(t)
	n.pass(t, "app", "again")
	if written := n.written(t, mark, deployer); len(written) > 0 {
		t.Errorf("the next pass wrote %v", written)
	}

	n.delete(t, "app")
	n.gone(t, "app")
	n.absent(t, n.configMap("a"), n.configMap("b"))
}

// T-55: a Job is made anew when its Pods are gone, and nobody waits for that in the meantime: a wait is a requeue.
func TestJobIsMadeAnewAfterItsPodsAreGone(t *testing.T) {
	n := shared(t).tenant(t)
	work := cluster.Ref("batch/v1", "Job", n.namespace, "work")
	n.source(t, "app", map[string]string{"app.yaml": heldJob("1")})
	n.stageSet(t, "app", oneStageWith("force: true"))
	uid := n.WaitFor(t, work).GetUID()
	pod := n.podOf(t, uid)
	n.hold(t, pod)
	n.wait(t, "app", phase("app", v1.StageVerifying))

	second := n.source(t, "app", map[string]string{"app.yaml": heldJob("2")})
	n.wait(t, "app", n.revision("lastAttemptedRevisions", "app", second),
		cluster.Condition(v1.ConditionReconciling, "True", v1.ReasonProgressing), phase("app", v1.StageApplying),
		messageHas("Job.batch "+n.namespace+"/work: is being deleted, to be made anew"))
	n.passWaits(t, "app")
	if live := n.live(t, work); live.GetUID() != uid || live.GetDeletionTimestamp() == nil {
		t.Errorf("the Job has UID %s and deletionTimestamp %v, want the first one, being deleted",
			live.GetUID(), live.GetDeletionTimestamp())
	}
	if diff := cmp.Diff([]string{"app as deployer: Job work"}, n.inventory(t, "app")); diff != "" {
		t.Errorf("inventory in the meantime (-want +got):\n%s", diff)
	}

	n.release(t, pod)
	n.WaitFor(t, work, func(live *unstructured.Unstructured) error {
		if live.GetUID() == uid {
			return fmt.Errorf("the Job is still the first one")
		}
		return nil
	})
	n.releasePods(t, work, "Complete")
	n.waitReady(t, "app", "app", second)
}

// podOf waits for a Pod of the owner.
func (n *tenant) podOf(t *testing.T, owner types.UID) *unstructured.Unstructured {
	t.Helper()
	var found *unstructured.Unstructured
	cluster.Eventually(t, func(ctx context.Context) error {
		var pods corev1.PodList
		if err := n.Client.List(ctx, &pods, client.InNamespace(n.namespace)); err != nil {
			return err
		}
		for _, pod := range pods.Items {
			if len(pod.OwnerReferences) > 0 && pod.OwnerReferences[0].UID == owner {
				found = cluster.Ref("v1", "Pod", n.namespace, pod.Name)
				return nil
			}
		}
		return fmt.Errorf("%s has no Pod among %d", owner, len(pods.Items))
	})
	return found
}

// An account that may not delete is told so before anything is written.
func TestMakingAnewNeedsThePermissionToDelete(t *testing.T) {
	n := shared(t).bareTenant(t)
	n.account(t, deployer, "view")
	n.Apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: writer, namespace: `+n.namespace+`}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list, create, patch]}]`)
	n.grant(t, n.namespace, deployer, "Role", "writer")
	first := n.source(t, "app", map[string]string{"app.yaml": sealed("a", "1")})
	n.stageSet(t, "app", oneStageWith("force: true, prune: false"))
	n.waitReady(t, "app", "app", first)
	n.source(t, "app", map[string]string{"app.yaml": documents(configMap("b", "1"), sealed("a", "2"))})
	n.wait(t, "app", cluster.Condition(v1.ConditionStalled, "True", v1.ReasonPermissionsMissing),
		messageHas("to make it anew, system:serviceaccount:"+n.namespace+":deployer needs the permission to delete it"))
	n.absent(t, n.configMap("b"))
	n.hasValue(t, "a", "1")
}

// I6: a reconciler that dies between deleting and making anew has lost nothing: its successor makes the object, once.
func TestKilledReconcilerMakesAnewWhatItDeleted(t *testing.T) {
	s := setup(t)
	lives := s.lives(t)
	for name, at := range map[string]moment{
		"before the delete": {write: "delete configmaps"},
		"after the delete":  {write: "delete configmaps", stored: true},
		"before the apply":  {write: "patch configmaps"},
		"after the apply":   {write: "patch configmaps", stored: true},
	} {
		t.Run(name, func(t *testing.T) {
			n := s.tenant(t)
			first := n.source(t, "app", map[string]string{"app.yaml": sealed("a", "1")})
			n.stageSet(t, "app", "retryInterval: 1s\n"+oneStageWith("force: true"))
			n.waitReady(t, "app", "app", first)
			var second string
			lives.die(t, n, at, func() { second = n.source(t, "app", map[string]string{"app.yaml": sealed("a", "2")}) })
			recorded := []string{"app as deployer: ConfigMap a"}
			if diff := cmp.Diff(recorded, n.inventory(t, "app")); diff != "" {
				t.Errorf("inventory of the dead (-want +got):\n%s", diff)
			}
			lives.begin()
			n.waitReady(t, "app", "app", second)
			n.hasValue(t, "a", "2")
			n.delete(t, "app")
			n.gone(t, "app")
			n.absent(t, n.configMap("a"))
		})
	}
}

// I3, I6: neither does a reconciler that makes nothing any more, because the StageSet is deleted before it begins, lose what
// the dead one made in the place of what it deleted.
func TestKilledReconcilerLeavesNothingThatItMadeAnew(t *testing.T) {
	s := setup(t)
	lives := s.lives(t)
	for name, at := range map[string]moment{
		"before the delete": {write: "delete configmaps"},
		"after the apply":   {write: "patch configmaps", stored: true},
	} {
		t.Run(name, func(t *testing.T) {
			n := s.tenant(t)
			first := n.source(t, "app", map[string]string{"app.yaml": sealed("a", "1")})
			n.stageSet(t, "app", "retryInterval: 1s\n"+oneStageWith("force: true"))
			n.waitReady(t, "app", "app", first)
			lives.die(t, n, at, func() { n.source(t, "app", map[string]string{"app.yaml": sealed("a", "2")}) })
			n.delete(t, "app")
			lives.begin()
			n.gone(t, "app")
			n.absent(t, n.configMap("a"))
		})
	}
}
