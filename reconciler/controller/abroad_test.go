package controller

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/inventory/store"
	"github.com/stageset/stageset/reconciler/pipeline"
	"github.com/stageset/stageset/reconciler/release"
	"github.com/stageset/stageset/reconciler/rules"
	"github.com/stageset/stageset/reconciler/source"
	"github.com/stageset/stageset/reconciler/tenant"
)

// distant is a way to a cluster that takes its time, and then says that the account may not.
type distant time.Duration

func (d distant) Destination(ctx context.Context, _ tenant.Reference) (tenant.Destination, error) {
	select {
	case <-time.After(time.Duration(d)):
		return tenant.Destination{}, failure.NewStalled(v1.ReasonAccessDenied, "denied")
	case <-ctx.Done():
		return tenant.Destination{}, ctx.Err()
	}
}

func (distant) Local(context.Context, tenant.Account) (*tenant.Reader, error) {
	return nil, failure.NewStalled(v1.ReasonAccessDenied, "denied")
}

func (distant) Target(context.Context, tenant.Destination, tenant.Account) (*tenant.Client, error) {
	return nil, failure.NewStalled(v1.ReasonAccessDenied, "denied")
}

// far is a reconciler of a StageSet whose objects are on another cluster, and what it has stored.
type far struct {
	*Reconciler
	stored client.Client
	name   client.ObjectKey
}

func newFar(t *testing.T, takes time.Duration, set *v1.StageSet) far {
	t.Helper()
	set.Namespace, set.Name, set.UID, set.Generation = "team-a", "shop", "1", 1
	set.Finalizers = []string{v1.Finalizer}
	set.Spec.KubeConfig = &v1.KubeConfigReference{}
	entry := v1.InventoryEntry{Version: "v1", Kind: "ConfigMap", Namespace: "team-a", Name: "a"}
	shard := inventory.Split(set, inventory.Record{
		Stage: "app", Prune: true, Target: v1.InventoryTarget{Cluster: "5f1c"},
		Entries: map[inventory.Key]v1.InventoryEntry{inventory.EntryKey(entry): entry},
	})[0]
	stored := fake.NewClientBuilder().WithScheme(scheme(t)).WithStatusSubresource(set).
		WithObjects(set, &shard, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}).
		WithIndex(&v1.StageInventory{}, store.IndexStageSet, store.StageSetOf).
		WithIndex(&v1.StageSet{}, "metadata.name", func(obj client.Object) []string { return []string{obj.GetName()} }).Build()
	compiled, err := policies.Compile(t.Context(), nil, policies.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{
		Client: stored, Live: stored, Store: store.New(stored), Policies: rules.New(func() *policies.Set { return compiled }),
		Pipeline: &pipeline.Pipeline{Tenants: distant(takes), Fetcher: &source.Fetcher{}},
		Waits:    NewWaits(), Events: &recorder{}, Clock: clock.RealClock{},
		Tracing: noop.NewTracerProvider(),
		Options: Options{DefaultInterval: 10 * time.Minute, MaxTeardownWait: time.Hour, Workers: 4},
	}
	return far{Reconciler: r, stored: stored, name: client.ObjectKeyFromObject(set)}
}

// pass makes a pass, and says when the next is due.
func (f far) pass(t *testing.T) time.Duration {
	t.Helper()
	result, err := f.Reconcile(t.Context(), ctrl.Request{NamespacedName: f.name})
	if err != nil {
		t.Fatal(err)
	}
	return result.RequeueAfter
}

// condition is a condition of the StageSet that is stored: its reason and message; empty if it has none.
func (f far) condition(t *testing.T, kind string) string {
	t.Helper()
	var set v1.StageSet
	if err := f.stored.Get(t.Context(), f.name, &set); err != nil {
		t.Fatal(err)
	}
	if found := meta.FindStatusCondition(set.Status.Conditions, kind); found != nil {
		return found.Reason + ": " + found.Message
	}
	return ""
}

func (f far) patient() bool { return f.memory.of(f.name, "1").slow }

// A look that takes longer than a pass in a hurry has says nothing of what runs: a patient one finds it out.
func TestALookThatWasCutShortIsNotShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFar(t, 40*time.Second, &v1.StageSet{Spec: v1.StageSetSpec{Suspend: true}})
		if again := f.pass(t); again != minBackoff || f.condition(t, v1.ConditionReady) != "" {
			t.Errorf("again after %s, Ready is %q", again, f.condition(t, v1.ConditionReady))
		}
		memo := f.memory.of(f.name, "1")
		if !memo.slow || memo.running != nil || !memo.maintained.IsZero() {
			t.Errorf("patient is %t, running %v, maintained %s", memo.slow, memo.running, memo.maintained)
		}
		f.pass(t)
		if got := memo.running; got == nil || got.Reason != v1.ReasonAccessDenied {
			t.Errorf("the patient pass has found %v", got)
		}
	})
}

// A pass that takes longer than one in a hurry may, however soon each answer comes, is patient the next time too.
func TestALargeStageSetStaysPatient(t *testing.T) {
	for name, tc := range map[string]struct {
		takes time.Duration
		want  bool
	}{
		"longer": {takes: 40 * time.Second, want: true}, "no longer": {takes: 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFar(t, tc.takes, &v1.StageSet{Spec: v1.StageSetSpec{Suspend: true}})
				f.memory.of(f.name, "1").slow = true
				f.pass(t)
				if got := f.patient(); got != tc.want {
					t.Errorf("patient is %t, want %t", got, tc.want)
				}
			})
		})
	}
}

func deleted(at time.Time) *v1.StageSet {
	return &v1.StageSet{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: ptr.To(metav1.NewTime(at))}}
}

// A deletion on a cluster that never answers in time is given up like one on a cluster that does not answer.
func TestADeletionThatIsTooSlowIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFar(t, time.Hour, deleted(time.Now()))
		if again := f.pass(t); again != minBackoff || f.condition(t, v1.ConditionStalled) != "" {
			t.Errorf("in a hurry: again after %s, Stalled is %q", again, f.condition(t, v1.ConditionStalled))
		}
		want := v1.ReasonTargetUnreachable + ": " + fmt.Sprintf(tooSlow, maxPatientPass)
		for range 7 { // of ten minutes each
			f.pass(t)
			if got := f.condition(t, v1.ConditionStalled); got != want {
				t.Fatalf("Stalled is %q, want %q", got, want)
			}
		}
		f.pass(t)
		var set v1.StageSet
		if err := f.stored.Get(t.Context(), f.name, &set); client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("the StageSet is still there: %v", err)
		}
	})
}

// What deletes nothing on another cluster needs no place to talk to it.
func TestWhatIsLetGoNeedsNoPlace(t *testing.T) {
	orphan := deleted(time.Now())
	orphan.Spec.DeletionPolicy = v1.DeletionPolicyOrphan
	for name, tc := range map[string]struct {
		set                  *v1.StageSet
		namespaceGoes, waits bool
	}{
		"orphans": {set: orphan}, "its namespace goes": {set: deleted(time.Now()), namespaceGoes: true},
		"what deletes": {set: deleted(time.Now()), waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFar(t, time.Second, tc.set)
			for _, other := range []string{"1", "2", "3"} {
				f.places.enter(named("others", other), false, 4)
			}
			if tc.namespaceGoes {
				if err := f.stored.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}); err != nil {
					t.Fatal(err)
				}
			}
			if again := f.pass(t); (again == maxTurn) != tc.waits {
				t.Errorf("again after %s, want to wait: %t", again, tc.waits)
			}
			err := f.stored.Get(t.Context(), f.name, &v1.StageSet{})
			if here := err == nil; here != tc.waits {
				t.Errorf("the StageSet is there: %t, want %t", here, tc.waits)
			}
		})
	}
}

// Whoever found no place is woken when the pass that has it ends.
func TestWhoStandsInLineIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFar(t, time.Second, &v1.StageSet{Spec: v1.StageSetSpec{Suspend: true}})
		for _, other := range []string{"1", "2"} {
			f.places.enter(named("others", other), false, 4)
		}
		ended := make(chan error)
		go func() {
			_, err := f.Reconcile(t.Context(), ctrl.Request{NamespacedName: f.name})
			ended <- err
		}()
		synctest.Wait()
		if f.places.enter(named("others", "3"), false, 4) {
			t.Error("there is one place too many")
		}
		if woken := <-f.Waits.over; woken.Object.GetName() != "3" {
			t.Errorf("%s is woken", woken.Object.GetName())
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A pass that only waits to hear from a cluster keeps the run that waits.
func TestAPostponedPassKeepsTheRun(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		kept bool
	}{
		"yet to answer": {err: failure.NewWaiting(v1.ReasonProgressing, time.Second, "has yet to answer"), kept: true},
		"failed":        {err: failure.NewStalled(v1.ReasonSourceNotFound, "no source")},
	} {
		t.Run(name, func(t *testing.T) {
			var r Reconciler
			set := &v1.StageSet{}
			snap := &snapshot{set: set, effective: set, book: &store.Book{}, memo: r.memory.of(named("team-a", "shop"), "1")}
			snap.memo.keep(&release.Run{}, candidate{identity: "same"}, 1)
			r.held(t.Context(), snap, tc.err)
			if kept := snap.memo.run != nil; kept != tc.kept {
				t.Errorf("the run is kept: %t, want %t", kept, tc.kept)
			}
		})
	}
}
