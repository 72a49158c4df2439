package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

// benchTimeout bounds one measured piece of work.
const benchTimeout = 10 * time.Minute

// parallelClients is how many requests of the benchmark's own run at once.
const parallelClients = 8

func inParallel(b *testing.B, units int, do func(ctx context.Context, unit int) error) {
	b.Helper()
	group, ctx := errgroup.WithContext(b.Context())
	group.SetLimit(parallelClients)
	for unit := range units {
		group.Go(func() error { return do(ctx, unit) })
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
}

func isReady(set *v1.StageSet) bool {
	ready := meta.FindStatusCondition(set.Status.Conditions, v1.ConditionReady)
	return ready != nil && ready.Status == "True" && ready.ObservedGeneration == set.Generation
}

// passToken is the request that the passes of benchmarks are asked for with.
const passToken = "bench"

// requestPass asks for a pass of the StageSet.
func requestPass(ctx context.Context, admin client.Client, set *v1.StageSet) error {
	patch := []byte(`{"metadata":{"annotations":{"` + v1.AnnotationRequestedAt + `":"` + passToken + `"}}}`)
	return admin.Patch(ctx, set, client.RawPatch("application/merge-patch+json", patch))
}

func isHandled(set *v1.StageSet) bool { return set.Status.LastHandledReconcileAt == passToken }

// waitAll waits until the predicate holds for that many StageSets of the namespace. It watches: a list again and again
// would cost the control plane more than the work that is measured.
func waitAll(b *testing.B, c *cluster.Cluster, namespace string, units int, done func(*v1.StageSet) bool) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), benchTimeout)
	defer cancel()
	watching, err := client.NewWithWatch(c.Config, client.Options{Scheme: c.Client(b, v1.AddToScheme).Scheme()})
	if err != nil {
		b.Fatal(err)
	}
	// Without a resource version, a watch begins with all objects there are.
	events, err := watching.Watch(ctx, &v1.StageSetList{}, client.InNamespace(namespace))
	if err != nil {
		b.Fatal(err)
	}
	defer events.Stop()
	finished := map[string]bool{}
	for len(finished) < units {
		event, open := <-events.ResultChan()
		if !open {
			b.Fatalf("the watch ended when %d of %d StageSets were done: %v", len(finished), units, ctx.Err())
		}
		set, ok := event.Object.(*v1.StageSet)
		if !ok {
			b.Fatalf("the watch says %v", event.Object)
		}
		if event.Type != watch.Deleted && done(set) {
			finished[set.Name] = true
		}
	}
}

// waitNone waits until the namespace has no StageSet: what one benchmark leaves, the reconciler of the next would delete.
func waitNone(b *testing.B, admin client.Client, namespace string) {
	b.Helper()
	waitNoneOf(b, admin, cluster.Ref(v1.GroupVersion.String(), "StageSet", namespace, ""))
}

// waitNoneOf is waitNone for objects of the kind of another one, in its namespace.
func waitNoneOf(b *testing.B, admin client.Client, kind *unstructured.Unstructured) {
	b.Helper()
	within := client.InNamespace(kind.GetNamespace())
	if err := admin.DeleteAllOf(b.Context(), kind.DeepCopy(), within); err != nil {
		b.Fatal(err)
	}
	err := wait.PollUntilContextTimeout(b.Context(), time.Second, benchTimeout, true, func(ctx context.Context) (bool, error) {
		left := listOf(kind)
		err := admin.List(ctx, left, within, client.Limit(1))
		return err == nil && len(left.Items) == 0, err
	})
	if err != nil {
		b.Fatalf("objects of kind %s are left in namespace %s: %v", kind.GetKind(), kind.GetNamespace(), err)
	}
}

// listOf is an empty list of objects of the kind.
func listOf(kind *unstructured.Unstructured) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(kind.GetAPIVersion())
	list.SetKind(kind.GetKind() + "List")
	return list
}

// measurement is what a piece of work cost the reconciler.
type measurement struct {
	wall, cpu time.Duration
	// requests are those of the controller's account and of all units' accounts, watches apart.
	requests int
}

func measure(b *testing.B, c *cluster.Cluster, reconciler *process.Process, work func()) measurement {
	b.Helper()
	mark := c.Audit(b)
	before, began := usage(b, reconciler), time.Now()
	work()
	wall, after := time.Since(began), usage(b, reconciler)
	return measurement{wall: wall, cpu: after.cpu - before.cpu, requests: len(mark.Since(b, func(e cluster.AuditEvent) bool {
		return e.Verb != "watch" && (strings.HasPrefix(e.User, "system:serviceaccount:bench-") ||
			e.User == "system:serviceaccount:"+system+":stageset-reconciler")
	}))}
}

// used is what a process has used so far.
type used struct {
	cpu  time.Duration
	peak int
}

// usage reads what the kernel knows of the process: its CPU time, and the most memory it had resident.
func usage(b *testing.B, p *process.Process) used {
	b.Helper()
	// See proc(5): fields 14 and 15 of stat are user and system time, in ticks of 10 ms on every Linux architecture.
	const userTime, systemTime, tick = 13, 14, 10 * time.Millisecond
	stat := readProc(b, p, "stat")
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	var result used
	for _, field := range []int{userTime, systemTime} {
		ticks, err := strconv.ParseInt(fields[field-2], 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		result.cpu += time.Duration(ticks) * tick
	}
	result.peak = p.PeakMemory(b)
	return result
}

func readProc(b *testing.B, p *process.Process, file string) string {
	b.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.PID(), file))
	if err != nil {
		b.Fatal(err)
	}
	return string(content)
}
