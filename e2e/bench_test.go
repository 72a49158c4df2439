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
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/artifacts"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

// unitObjects is what each unit of the benchmarks applies: four objects, a Deployment without replicas among them.
const unitObjects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: %[1]s}
data: {unit: %[1]s}
---
apiVersion: v1
kind: Secret
metadata: {name: %[1]s}
stringData: {unit: %[1]s}
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s}
spec: {selector: {app: %[1]s}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: 0
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {containers: [{name: app, image: app}]}
`

// unitSetup is what a unit needs before its StageSet: an account of its own that may edit the namespace.
const unitSetup = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: %[1]s, namespace: %[2]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: %[1]s, namespace: %[2]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[3]s}
subjects: [{kind: ServiceAccount, name: %[1]s, namespace: %[2]s}]
`

// parallelClients is how many requests of the benchmark's own run at once.
const parallelClients = 8

// BenchmarkUnits measures N StageSets (one stage, four objects, an account each) from create to all Ready, and a pass of
// all in which nothing changed. Everything shares the machine with the control plane, so the wall time says little by
// itself: x-apply is its ratio to a plain client that applies the same objects, one request each, in the same run.
func BenchmarkUnits(b *testing.B) {
	for _, units := range []int{100} {
		b.Run(strconv.Itoa(units), func(b *testing.B) {
			for b.Loop() {
				benchmarkUnits(b, units)
			}
		})
	}
}

func benchmarkUnits(b *testing.B, units int) {
	c := setup(b).Cluster
	plain := plainApply(b, c, units)

	server := artifacts.Start(b)
	namespace := c.Namespace(b, "bench")
	prepareUnits(b, c, server, namespace, units)
	reconciler := startReconciler(b, c, "127.0.0.1")
	admin := c.Client(b, v1.AddToScheme)

	idle := usage(b, reconciler)
	created := measure(b, c, reconciler, func() {
		inParallel(b, units, func(ctx context.Context, unit int) error {
			return admin.Create(ctx, unitStageSet(namespace, unit))
		})
		waitAll(b, admin, namespace, units, func(set *v1.StageSet) bool {
			return meta.IsStatusConditionTrue(set.Status.Conditions, v1.ConditionReady)
		})
	})
	b.ReportMetric(created.wall.Seconds(), "create-s")
	b.ReportMetric(created.wall.Seconds()/plain.Seconds(), "create-x-apply")
	b.ReportMetric(float64(created.requests)/float64(units), "create-requests/unit")
	b.ReportMetric(created.cpu.Seconds()/float64(units), "create-cpu-s/unit")

	idlePass := measure(b, c, reconciler, func() {
		inParallel(b, units, func(ctx context.Context, unit int) error {
			patch := []byte(`{"metadata":{"annotations":{"` + v1.AnnotationRequestedAt + `":"now"}}}`)
			return admin.Patch(ctx, unitStageSet(namespace, unit), client.RawPatch("application/merge-patch+json", patch))
		})
		waitAll(b, admin, namespace, units, func(set *v1.StageSet) bool { return set.Status.LastHandledReconcileAt == "now" })
	})
	b.ReportMetric(idlePass.wall.Seconds(), "noop-s")
	b.ReportMetric(float64(idlePass.requests)/float64(units), "noop-requests/unit")
	b.ReportMetric(idlePass.cpu.Seconds()/float64(units), "noop-cpu-s/unit")
	b.ReportMetric(float64(usage(b, reconciler).peak)/(1<<20), "peak-MiB")
	b.ReportMetric(float64(idle.peak)/(1<<20), "idle-MiB")
}

func unitName(unit int) string { return fmt.Sprintf("unit-%04d", unit) }

func unitStageSet(namespace string, unit int) *v1.StageSet {
	set := &v1.StageSet{}
	set.Namespace, set.Name = namespace, unitName(unit)
	set.Spec.ServiceAccountName = unitName(unit)
	set.Spec.Stages = []v1.Stage{{
		Name: "app", SourceRef: v1.SourceReference{Kind: v1.SourceKindGitRepository, Name: unitName(unit)},
	}}
	return set
}

// prepareUnits makes accounts and sources of all units, before anything is measured.
func prepareUnits(b *testing.B, c *cluster.Cluster, server *artifacts.Server, namespace string, units int) {
	b.Helper()
	role := "cluster-admin" // narrowed to the namespace by the RoleBinding
	for unit := range units {
		name := unitName(unit)
		c.Apply(b, fmt.Sprintf(unitSetup, name, namespace, role))
		archive := artifacts.TarGz(b, map[string]string{"app.yaml": fmt.Sprintf(unitObjects, name)})
		publish(b, c, namespace, name, server.Put("gitrepository", namespace, name, archive))
	}
}

// plainApply is how long a plain client takes to apply the objects of all units, one server-side apply each.
func plainApply(b *testing.B, c *cluster.Cluster, units int) time.Duration {
	b.Helper()
	namespace := c.Namespace(b, "plain")
	admin := c.Client(b)
	began := time.Now()
	inParallel(b, units, func(ctx context.Context, unit int) error {
		for manifest := range strings.SplitSeq(fmt.Sprintf(unitObjects, unitName(unit)), "---") {
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(manifest), &object.Object); err != nil {
				return err
			}
			object.SetNamespace(namespace)
			err := admin.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("plain"))
			if err != nil {
				return err
			}
		}
		return nil
	})
	return time.Since(began)
}

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

// waitAll waits until the predicate holds for all StageSets of the namespace.
func waitAll(b *testing.B, admin client.Client, namespace string, units int, done func(*v1.StageSet) bool) {
	b.Helper()
	cluster.Eventually(b, func(ctx context.Context) error {
		var sets v1.StageSetList
		if err := admin.List(ctx, &sets, client.InNamespace(namespace)); err != nil {
			return err
		}
		ready := 0
		for i := range sets.Items {
			if done(&sets.Items[i]) {
				ready++
			}
		}
		if ready < units {
			return fmt.Errorf("%d of %d are done", ready, units)
		}
		return nil
	})
}

// measurement is what a piece of work cost the reconciler.
type measurement struct {
	wall, cpu time.Duration
	// requests are those of the reconciler's account and of all units' accounts, watches apart.
	requests int
}

func measure(b *testing.B, c *cluster.Cluster, reconciler *process.Process, work func()) measurement {
	b.Helper()
	mark := c.Audit(b)
	before, began := usage(b, reconciler), time.Now()
	work()
	wall, after := time.Since(began), usage(b, reconciler)
	return measurement{wall: wall, cpu: after.cpu - before.cpu, requests: len(mark.Since(b, func(e cluster.AuditEvent) bool {
		return strings.HasPrefix(e.User, "system:serviceaccount:bench-") ||
			e.User == "system:serviceaccount:"+system+":stageset-reconciler" && e.Verb != "watch"
	}))}
}

// used is what a process has used so far.
type used struct {
	cpu  time.Duration
	peak int64
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
	for line := range strings.Lines(readProc(b, p, "status")) {
		if rest, found := strings.CutPrefix(line, "VmHWM:"); found {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			result.peak = kib << 10
		}
	}
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
