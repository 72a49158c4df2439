package e2e

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

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

// BenchmarkUnits measures N StageSets (one stage, four objects, an account each) from create to all Ready, a pass of all in
// which nothing changed, and their deletion. Everything shares the machine with the control plane, so the wall time says
// little by itself: x-apply is its ratio to a plain client that applies the same objects, one request each, in the same run.
func BenchmarkUnits(b *testing.B) {
	for size := range strings.SplitSeq(*sizes, ",") {
		units, err := strconv.Atoi(size)
		if err != nil {
			b.Fatalf("-units: %v", err)
		}
		b.Run(size, func(b *testing.B) {
			for b.Loop() {
				benchmarkUnits(b, units)
			}
		})
		if *otherBinary != "" {
			b.Run(size+"/other", func(b *testing.B) {
				for b.Loop() {
					benchmarkOther(b, units)
				}
			})
		}
	}
}

var sizes = flag.String("units", "100,500,1000", "how many units BenchmarkUnits measures, one after the other")

func benchmarkUnits(b *testing.B, units int) {
	c := setup(b).Cluster
	plain := plainApply(b, c, units)
	bench := startUnits(b, c, units)

	created := bench.create(b)
	reportCreated(b, created, plain, units)
	bench.profiler.keep(b, "created")
	allocated := bench.profiler.allocated(b)
	idlePass := bench.pass(b)
	allocated = bench.profiler.allocated(b) - allocated
	bench.profiler.keep(b, "noop")
	b.ReportMetric(idlePass.wall.Seconds(), "noop-s")
	b.ReportMetric(float64(idlePass.requests)/float64(units), "noop-requests/unit")
	b.ReportMetric(idlePass.cpu.Seconds()/float64(units), "noop-cpu-s/unit")
	b.ReportMetric(float64(allocated)/float64(units)/(1<<10), "noop-alloc-KiB/unit")
	b.ReportMetric(float64(usage(b, bench.reconciler).peak)/(1<<20), "peak-MiB")

	deleted := measure(b, c, bench.reconciler, func() { waitNone(b, bench.admin, bench.namespace) })
	b.ReportMetric(deleted.wall.Seconds(), "delete-s")
}

// reportCreated reports what it took until all units were applied, and a plain client.
func reportCreated(b *testing.B, created measurement, plain time.Duration, units int) {
	b.Helper()
	b.ReportMetric(created.wall.Seconds(), "create-s")
	b.ReportMetric(created.wall.Seconds()/plain.Seconds(), "create-x-apply")
	b.ReportMetric(float64(created.requests)/float64(units), "create-requests/unit")
	b.ReportMetric(created.cpu.Seconds()/float64(units), "create-cpu-s/unit")
}

// T-101: BenchmarkConcurrent measures what more workers bring: 100 StageSets from create to all Ready with one, four and twenty.
// x-one is the ratio of the wall time to that of one worker, in the same run. That twenty take longer is a failure.
func BenchmarkConcurrent(b *testing.B) {
	const units = 100
	var one time.Duration
	for _, workers := range []int{1, 4, 20} {
		b.Run(strconv.Itoa(workers), func(b *testing.B) {
			for b.Loop() {
				bench := startUnits(b, setup(b).Cluster, units, "--concurrent", strconv.Itoa(workers))
				created := bench.create(b)
				if workers == 1 {
					one = created.wall
				}
				b.ReportMetric(created.wall.Seconds(), "create-s")
				b.ReportMetric(units/created.wall.Seconds(), "units/s")
				if one > 0 {
					b.ReportMetric(created.wall.Seconds()/one.Seconds(), "create-x-one")
				}
				if workers == 20 && one > 0 && created.wall >= one {
					b.Errorf("%d workers took %s, one took %s", workers, created.wall, one)
				}
				waitNone(b, bench.admin, bench.namespace)
			}
		})
	}
}

// unitBench is a number of units, ready to be created, with a reconciler of its own.
type unitBench struct {
	cluster    *cluster.Cluster
	admin      client.Client
	reconciler *process.Process
	profiler   profiler
	namespace  string
	units      int
	// kubeConfig leads to the cluster that the units are applied to; nil is this one.
	kubeConfig *v1.KubeConfigReference
}

func startUnits(b *testing.B, c *cluster.Cluster, units int, args ...string) unitBench {
	b.Helper()
	namespace := c.Namespace(b, "bench")
	prepareUnits(b, c, artifacts.Start(b), namespace, units)
	profiler := newProfiler(b)
	return unitBench{
		cluster: c, admin: c.Client(b, v1.AddToScheme), namespace: namespace, units: units, profiler: profiler,
		reconciler: startReconciler(b, c, "127.0.0.1", append(args, profiler.argument())...),
	}
}

// create measures from the creation of all units until all are Ready.
func (u unitBench) create(b *testing.B) measurement {
	b.Helper()
	return measure(b, u.cluster, u.reconciler, func() {
		inParallel(b, u.units, func(ctx context.Context, unit int) error {
			set := unitStageSet(u.namespace, unit)
			set.Spec.KubeConfig = u.kubeConfig
			return u.admin.Create(ctx, set)
		})
		waitAll(b, u.cluster, u.namespace, u.units, isReady)
	})
}

// pass measures a pass of all units, asked for by the annotation. The answer to that is one request of each pass.
func (u unitBench) pass(b *testing.B) measurement {
	b.Helper()
	return measure(b, u.cluster, u.reconciler, func() {
		inParallel(b, u.units, func(ctx context.Context, unit int) error {
			return requestPass(ctx, u.admin, unitStageSet(u.namespace, unit))
		})
		waitAll(b, u.cluster, u.namespace, u.units, isHandled)
	})
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
