package chart_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

// The scripts of docs/operations.md, in its order.
const (
	scriptLeader = iota
	scriptRollback
	scriptStop
	scriptStart
	scriptSuspend
	scriptResume
	scriptWarn
	scriptBackUp
	scriptRestart
	scriptHalt
	scriptRestore
	scriptInventories
	scriptInventoriesOfOtherUIDs
	scriptGoOn
	scriptWait
	scriptLookForRest
	scriptCount
)

// The commands of docs/operations.md do what it says to a release that has StageSets, which have applied something.
func TestOperatingAsDocumented(t *testing.T) {
	o := operated(t)
	t.Run("who leads", func(t *testing.T) {
		if leader := o.script(t, scriptLeader); strings.TrimSpace(leader) == "" {
			t.Error("nobody leads")
		}
	})
	t.Run("an upgrade is taken back", func(t *testing.T) {
		o.shell.run(t, o.upgrade+" --set reconciler.podAnnotations.number=one")
		o.script(t, scriptRollback)
		o.applies(t, "stays", "leaves")
	})
	t.Run("everything stops", func(t *testing.T) {
		o.script(t, scriptStop)
		if o.pod != nil {
			t.Fatal("a reconciler is to run")
		}
		revision := o.changes(t, "stays", "leaves")
		o.script(t, scriptStart)
		o.ready(t, o.app, revision)
		o.shell.run(t, o.upgrade) // nothing is left that helm would not change
	})
	t.Run("a namespace stops", func(t *testing.T) {
		o.script(t, scriptSuspend)
		o.WaitFor(t, o.app, cluster.Condition("Ready", "True", "Suspended"))
		revision := o.changes(t, "stays", "leaves")
		o.script(t, scriptResume)
		o.ready(t, o.app, revision)
	})
	t.Run("a policy only warns", o.thaws)
	t.Run("both programs start anew", func(t *testing.T) {
		o.script(t, scriptRestart)
		for _, program := range []string{"admission", "reconciler"} {
			deployment := o.WaitFor(t, cluster.Ref("apps/v1", "Deployment", o.release.namespace, "stageset-"+program))
			at, _, _ := unstructured.NestedString(deployment.Object, "spec", "template", "metadata", "annotations", restartedAt)
			if at == "" {
				t.Errorf("stageset-%s is not started anew", program)
			}
		}
		o.shell.run(t, o.upgrade)
	})
	t.Run("StageSets are lost, and nothing else", func(t *testing.T) {
		o.applies(t, "stays", "leaves")
		o.script(t, scriptBackUp)
		o.applies(t, "stays", "leaves", "late")
		o.lose(t)
		before := o.uids(t)
		o.restores(t, scriptInventories)
		o.has(t, before, "comes", "late", "stays")
		o.finds(t, "late")
	})
	t.Run("everything is lost, and restored with other UIDs", func(t *testing.T) {
		o.applies(t, "stays", "leaves")
		o.script(t, scriptBackUp)
		o.lose(t)
		o.remake(t)
		before := o.uids(t)
		o.restores(t, scriptInventoriesOfOtherUIDs)
		o.has(t, before, "comes", "stays")
	})
	o.delete(t, o.app)
	o.has(t, nil)
}

// restartedAt is the annotation of a Pod's template by which kubectl starts Pods anew.
const restartedAt = "kubectl.kubernetes.io/restartedAt"

// operation is a release that is operated by the scripts of the document, and the StageSet shop in it.
type operation struct {
	*tenant
	test    *testing.T // that processes live in
	app     *unstructured.Unstructured
	shell   shell
	scripts []string
	// upgrade is a command that upgrades to what is installed.
	upgrade string
	// pod is the reconciler; nil while its Deployment has no replicas.
	pod    *process.Process
	change int
}

// operated installs the release. Its namespaces are not those of the document.
func operated(t *testing.T) *operation {
	withoutCRDs(t)
	r := prepare(t, "stageset", "")
	o := &operation{tenant: r.tenant(t), test: t, shell: newShell(t, r.Kubeconfig)}
	o.app = o.stageSet("shop")
	t.Cleanup(func() { o.unprotect(uncancelled{t}) }) // a test that failed must not keep the namespace
	own := strings.NewReplacer("stageset-system", r.namespace, "team-a", o.namespace)
	for _, script := range scripts(t, "docs/operations.md") {
		o.scripts = append(o.scripts, own.Replace(script.Text))
	}
	if len(o.scripts) != scriptCount {
		t.Fatalf("the document has %d scripts, and here are %d", len(o.scripts), scriptCount)
	}
	freeze, err := os.ReadFile(filepath.Join(repository, "policies", "library", "freeze.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	values := strings.Replace(fmt.Sprintf(processes, ports(t)...), "reconciler: {", "reconciler: {hashKeySecret: stageset-hash-key, ", 1)
	for name, content := range map[string]string{"values.yaml": values, "freeze.yaml": own.Replace(string(freeze))} {
		if err := os.WriteFile(filepath.Join(o.shell.folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.values = []string{filepath.Join(o.shell.folder, "values.yaml")}
	r.Apply(t, fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: stageset-hash-key, namespace: %s}, stringData: {key: %q}}",
		r.namespace, strings.Repeat("k", 32)))
	o.upgrade = "helm upgrade stageset charts/stageset --values values.yaml --wait --namespace " + r.namespace
	r.install(t)
	r.route(t)
	r.start(t, "admission")
	o.kubelet(t)
	revision := o.changes(t, "stays", "leaves")
	o.create(t, o.app)
	o.ready(t, o.app, revision)
	return o
}

// script runs a script of the document, and then has the reconciler run, or not, as its Deployment is.
func (o *operation) script(t *testing.T, number int) string {
	t.Helper()
	printed := o.shell.run(t, o.scripts[number])
	o.kubelet(t)
	return printed
}

// kubelet does what a cluster with nodes would: the reconciler runs as long as there are replicas.
func (o *operation) kubelet(t *testing.T) {
	t.Helper()
	var deployment appsv1.Deployment
	if err := o.client.Get(t.Context(), o.key("reconciler"), &deployment); err != nil {
		t.Fatal(err)
	}
	switch wanted := *deployment.Spec.Replicas > 0; {
	case wanted && o.pod == nil:
		o.pod = o.start(o.test, "reconciler")
	case !wanted && o.pod != nil:
		o.stops(t)
	}
}

func (o *operation) stops(t *testing.T) {
	t.Helper()
	if err := o.pod.Stop(); err != nil {
		t.Error(err)
	}
	o.pod = nil
}

// changes makes the source have these ConfigMaps, with another value than before.
func (o *operation) changes(t *testing.T, names ...string) (revision string) {
	t.Helper()
	o.change++
	return o.commitMaps(t, "shop", fmt.Sprint(o.change), names...)
}

// applies has the StageSet apply these ConfigMaps.
func (o *operation) applies(t *testing.T, names ...string) {
	t.Helper()
	o.ready(t, o.app, o.changes(t, names...))
}

// thaws shows that the policy freeze holds a release until it only warns.
func (o *operation) thaws(t *testing.T) {
	o.shell.run(t, "kubectl apply --filename freeze.yaml; kubectl create configmap freeze --from-literal frozen=true --namespace "+
		o.release.namespace)
	revision := o.changes(t, "stays", "leaves")
	o.WaitFor(t, o.app, cluster.Condition("Ready", "False", "PolicyViolation"))
	o.script(t, scriptWarn)
	o.ready(t, o.app, revision)
}

// lose takes StageSets, inventories and policies away, with their kinds, and nothing that was applied. The source changes
// meanwhile: leaves has left it, and comes has come.
func (o *operation) lose(t *testing.T) {
	t.Helper()
	o.stops(t)
	o.unprotect(t)
	withoutCRDs(t)
	o.changes(t, "stays", "comes")
}

// unprotect takes finalizers from StageSets and inventories.
func (o *operation) unprotect(t testing.TB) {
	t.Helper()
	for _, kind := range []string{"StageSet", "StageInventory"} {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("stages.metio.wtf/v1")
		list.SetKind(kind + "List")
		if err := o.client.List(t.Context(), list, client.InNamespace(o.namespace)); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`))
			if err := client.IgnoreNotFound(o.client.Patch(t.Context(), &list.Items[i], patch)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// remake makes what was applied anew, as a tool does that restores it in another cluster: with other UIDs, and the managedFields
// that it had, which the API server lets be set afterwards alone.
func (o *operation) remake(t *testing.T) {
	t.Helper()
	for _, live := range o.applied(t) {
		if err := o.client.Delete(t.Context(), &live); err != nil {
			t.Fatal(err)
		}
		restored := live.DeepCopy()
		restored.UID, restored.ResourceVersion = "", ""
		if err := o.client.Create(t.Context(), restored); err != nil {
			t.Fatal(err)
		}
		restored.ManagedFields = live.ManagedFields
		if err := o.client.Update(t.Context(), restored); err != nil {
			t.Fatal(err)
		}
		if restored.UID == live.UID {
			t.Fatalf("ConfigMap %s has the UID that it had", live.Name)
		}
	}
}

// restores does what the document says about a restoration, with one of its scripts for inventories.
func (o *operation) restores(t *testing.T, inventories int) {
	t.Helper()
	for _, number := range []int{scriptHalt, scriptRestore, inventories, scriptGoOn, scriptWait} {
		o.script(t, number)
	}
}

// applied are the ConfigMaps with the labels of the StageSet.
func (o *operation) applied(t *testing.T) []corev1.ConfigMap {
	t.Helper()
	var list corev1.ConfigMapList
	labels := client.MatchingLabels{"stages.metio.wtf/name": "shop", "stages.metio.wtf/namespace": o.namespace}
	if err := o.client.List(t.Context(), &list, client.InNamespace(o.namespace), labels); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// uids are the UIDs of what is applied, by name.
func (o *operation) uids(t *testing.T) map[string]types.UID {
	t.Helper()
	uids := map[string]types.UID{}
	for _, live := range o.applied(t) {
		uids[live.Name] = live.UID
	}
	return uids
}

// has checks what is applied, and that what was there before is still the same.
func (o *operation) has(t *testing.T, before map[string]types.UID, names ...string) {
	t.Helper()
	uids := o.uids(t)
	if diff := cmp.Diff(names, slices.Sorted(maps.Keys(uids))); diff != "" {
		t.Errorf("what is applied (-want +got):\n%s", diff)
	}
	for name, uid := range uids {
		if before[name] != "" && before[name] != uid {
			t.Errorf("ConfigMap %s was made anew", name)
		}
	}
}

// finds checks that the document finds what no inventory has, and deletes it.
func (o *operation) finds(t *testing.T, name string) {
	t.Helper()
	var found []string
	for line := range strings.Lines(o.script(t, scriptLookForRest)) {
		if !strings.HasPrefix(line, "Warning: ") { // of kinds that are deprecated
			found = append(found, strings.TrimSpace(line))
		}
	}
	want := []string{"configmap/comes", "configmap/" + name, "configmap/stays", "ConfigMap/comes", "ConfigMap/stays"}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("labelled, and recorded (-want +got):\n%s", diff)
	}
	if err := o.client.Delete(t.Context(), cluster.Ref("v1", "ConfigMap", o.namespace, name)); err != nil {
		t.Fatal(err)
	}
}
