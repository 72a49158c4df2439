package release_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/inventory/store"
	"github.com/stageset/stageset/reconciler/ownership"
	"github.com/stageset/stageset/reconciler/preflight"
	"github.com/stageset/stageset/reconciler/release"
	"github.com/stageset/stageset/reconciler/tenant"
)

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

// world is a StageSet whose objects are on a real API server, with inventories that are kept aside, so that a test can have
// any write of them fail. It writes down what is written, in order.
type world struct {
	*cluster.Cluster
	namespace   string
	target      *tenant.Client
	inventories client.Client
	owner       *v1.StageSet
	hasher      inventory.Hasher
	clock       *clocktesting.FakePassiveClock
	// begun is Options.Begun of the runs that begin.
	begun bool

	// written is what was written, oldest first.
	written []string
	// dies is how many more writes are made before the process dies; never if it is negative.
	dies int
	// fails is how many more writes are made before one that fails, and no other does; none if it is negative.
	fails int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Cluster: cluster.Shared(t), clock: clocktesting.NewFakePassiveClock(time.Now()), dies: -1, fails: -1}
	w.namespace = w.Namespace(t, "release")
	w.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: deployer, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: deployer, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: deployer, namespace: %[1]s}]`, w.namespace))
	clients, err := tenant.New(tenant.Options{Config: w.Config})
	if err != nil {
		t.Fatal(err)
	}
	account := tenant.Account{Namespace: w.namespace, Name: "deployer"}
	if w.target, err = clients.Target(t.Context(), tenant.Destination{}, account); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, func(ctx context.Context) error { // RBAC of the apiserver is eventually consistent
		return w.target.List(ctx, configMap, tenant.ListOptions{Namespace: w.namespace}, func(*unstructured.Unstructured) {})
	})
	if w.hasher, err = inventory.NewHasher(""); err != nil {
		t.Fatal(err)
	}
	w.owner = &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "shop", UID: "owner"}}
	w.inventories = w.newInventories(t)
	return w
}

// newInventories is the API server that inventories are on.
func (w *world) newInventories(t *testing.T) client.Client {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(w.owner).
		WithIndex(&v1.StageInventory{}, store.IndexStageSet, store.StageSetOf).
		WithIndex(&v1.StageInventory{}, store.IndexObject, store.ObjectsOf).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
				if err := w.write(recorded(obj)); err != nil {
					return err
				}
				return c.Create(ctx, obj, o...)
			},
			Update: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.UpdateOption) error {
				if err := w.write(recorded(obj)); err != nil {
					return err
				}
				return c.Update(ctx, obj, o...)
			},
		}).Build()
}

// recorded is an inventory in one line; an entry without a UID has a question mark.
func recorded(obj client.Object) string {
	shard := obj.(*v1.StageInventory)
	line := "record " + shard.Spec.Stage + ":"
	for _, entry := range shard.Spec.Entries {
		line += " " + entry.Name
		if entry.UID == "" {
			line += "?"
		}
	}
	return line
}

var (
	errDied   = errors.New("the process has died")
	errFailed = errors.New("the write failed")
)

// write notes a write that is about to be made, unless the process has died, or this one fails.
func (w *world) write(what string) error {
	if w.dies == 0 {
		return errDied
	}
	w.dies, w.fails = w.dies-1, w.fails-1
	if w.fails == -1 {
		return errFailed
	}
	w.written = append(w.written, what)
	return nil
}

// transcript is what was written since it was last asked.
func (w *world) transcript() []string {
	written := w.written
	w.written = nil
	return written
}

// spied is the target, with its writes noted.
type spied struct {
	*tenant.Client
	world *world
}

func (s spied) Apply(ctx context.Context, obj *unstructured.Unstructured, options tenant.ApplyOptions) (
	*unstructured.Unstructured, error,
) {
	if !options.DryRun {
		what := "apply "
		if options.Force {
			what = "force "
		}
		if err := s.world.write(what + obj.GetName()); err != nil {
			return nil, err
		}
	}
	return s.Client.Apply(ctx, obj, options)
}

func (s spied) Delete(
	ctx context.Context, gvk schema.GroupVersionKind, namespace, name string, options tenant.DeleteOptions,
) (bool, error) {
	if err := s.world.write("delete " + name); err != nil {
		return false, err
	}
	return s.Client.Delete(ctx, gvk, namespace, name, options)
}

var configMap = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

// timeout is that of every stage.
const timeout = time.Minute

// stage is a stage of a release.
type stage struct {
	name    string
	objects []string
	// waits is true when a ConfigMap is healthy only with the label healthy, and has failed with the label broken. Else it is
	// healthy as soon as it exists.
	waits       bool
	disableWait bool
	// recreates is true when the stage makes anew what cannot be changed.
	recreates bool
	// checks are the names of ConfigMaps of others that the stage waits for.
	checks []string
}

// plain is the manifest of a ConfigMap; more are further fields.
func plain(name string, more ...string) string {
	fields := append([]string{"apiVersion: v1", "kind: ConfigMap", "metadata: {name: " + name + "}"}, more...)
	return "{" + strings.Join(fields, ", ") + "}"
}

// after is the manifest of a ConfigMap that has to be applied after another.
func (w *world) after(name, other string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, annotations: {"+
		"config.kubernetes.io/depends-on: /namespaces/%s/ConfigMap/%s}}}", name, w.namespace, other)
}

// begin is a pass as the first of a process makes it: all that is known is in the cluster and in the inventories. Whatever
// the process before died of is over.
func (w *world) begin(t *testing.T, stages ...stage) (*release.Run, *store.Book) {
	t.Helper()
	w.dies = -1
	inventories := store.New(w.inventories)
	book, err := inventories.Open(t.Context(), w.owner)
	if err != nil {
		t.Fatal(err)
	}
	all := map[inventory.Key]v1.InventoryEntry{}
	for _, record := range book.Records() {
		maps.Copy(all, record.Entries)
	}
	in := preflight.Input{
		Applier: ownership.Applier{
			Owner: ownership.Owner{Namespace: w.namespace, Name: w.owner.Name}, Claims: inventories, Cluster: v1.ClusterLocal,
		},
		Recorded: all, Concurrency: 1,
	}
	known := make([]release.Stage, 0, len(stages))
	for _, stage := range stages {
		in.Stages = append(in.Stages, w.render(t, in.Applier.Owner, stage))
		known = append(known, release.Stage{
			Record: inventory.ID{
				Stage:  stage.name,
				Target: v1.InventoryTarget{Cluster: v1.ClusterLocal, ServiceAccountName: w.target.Account().Name},
			},
			Prune: true, Timeout: timeout, DisableWait: stage.disableWait,
		})
	}
	cleared, err := preflight.Check(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return release.New(cleared, known, all, release.Options{
		Clock: w.clock, Concurrency: 1, Begun: w.begun,
		BeforeWrite: func(context.Context) error { return w.write("finalizer") },
	}), book
}

// render is a stage as the preflight takes it.
func (w *world) render(t *testing.T, owner ownership.Owner, stage stage) preflight.Stage {
	t.Helper()
	out := preflight.Stage{
		Name: stage.name, Account: w.target.Account(), Target: spied{w.target, w}, Prunes: true,
		Ready: &v1.ReadyChecks{},
	}
	for _, name := range stage.checks {
		out.Ready.Checks = append(out.Ready.Checks,
			v1.ReadyCheck{APIVersion: "v1", Kind: "ConfigMap", Namespace: w.namespace, Name: name})
	}
	if stage.waits {
		out.Ready.Exprs = []v1.ReadyExpressions{{
			APIVersion: "v1", Kind: "ConfigMap", Failed: "has(metadata.labels.broken)", Current: "has(metadata.labels.healthy)",
		}}
	}
	if stage.recreates {
		out.Conflicts.Default = v1.ConflictRecreate
	}
	for _, manifest := range stage.objects {
		rendered := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(manifest), &rendered.Object); err != nil {
			t.Fatalf("%v in %s", err, manifest)
		}
		rendered.SetNamespace(w.namespace)
		desired := owner.Stamp(rendered, stage.name)
		hash, err := w.hasher.Hash(desired)
		if err != nil {
			t.Fatal(err)
		}
		out.Objects = append(out.Objects, preflight.Rendered{Desired: desired, Hash: hash})
	}
	return out
}

// advance carries a run on, which must not fail, and says in one line how far it came.
func (w *world) advance(t *testing.T, run *release.Run, book *store.Book) string {
	t.Helper()
	progress, err := run.Advance(t.Context(), book)
	if err != nil {
		t.Fatal(err)
	}
	return w.said(progress)
}

// said is a progress in one line, without the namespace.
func (w *world) said(progress release.Progress) string {
	report := progress.Health
	parts := []string{progress.Step.String(), progress.Name, report.FailedMessage(), report.ProgressingMessage()}
	text := strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ": ")
	return strings.ReplaceAll(text, w.namespace+"/", "")
}

// released has a release applied to its end, and forgets what was written for it.
func (w *world) released(t *testing.T, stages ...stage) {
	t.Helper()
	run, book := w.begin(t, stages...)
	if got := w.advance(t, run, book); got != "Done" {
		t.Fatalf("the release is not applied: %s", got)
	}
	w.transcript()
}

// label labels a ConfigMap as somebody else.
func (w *world) label(t *testing.T, name, label string) {
	t.Helper()
	w.patch(t, name, fmt.Sprintf(`{"metadata": {"labels": {%q: ""}}}`, label))
}

// patch changes a ConfigMap as somebody else.
func (w *world) patch(t *testing.T, name, patch string) {
	t.Helper()
	live := cluster.Ref("v1", "ConfigMap", w.namespace, name)
	if err := w.Client(t).Patch(t.Context(), live, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// live are the UIDs of the ConfigMaps that the StageSet has applied, by name.
func (w *world) live(t *testing.T) map[string]string {
	t.Helper()
	uids := map[string]string{}
	labelled := client.MatchingLabels{v1.LabelName: w.owner.Name}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(configMap.GroupVersion().WithKind("ConfigMapList"))
	err := w.Client(t).List(t.Context(), list, client.InNamespace(w.namespace), labelled)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range list.Items {
		uids[object.GetName()] = string(object.GetUID())
	}
	return uids
}

// stored are the UIDs of the ConfigMaps in the inventories that are stored, by name.
func (w *world) stored(t *testing.T) map[string]string {
	t.Helper()
	uids := map[string]string{}
	var shards v1.StageInventoryList
	if err := w.inventories.List(t.Context(), &shards); err != nil {
		t.Fatal(err)
	}
	for _, shard := range shards.Items {
		for _, entry := range shard.Spec.Entries {
			uids[entry.Name] = string(entry.UID)
		}
	}
	return uids
}
