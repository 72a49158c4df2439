package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/artifacts"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

// BenchmarkConfigMaps measures one stage of very many objects: from create to Ready, a pass in which nothing changed, and a
// revision in which one object changed. x-apply is the ratio of the wall time to that of a plain client that applies as
// many objects, one request each, in the same run.
func BenchmarkConfigMaps(b *testing.B) {
	for _, objects := range []int{1000, 5000} {
		b.Run(strconv.Itoa(objects), func(b *testing.B) {
			for b.Loop() {
				benchmarkConfigMaps(b, objects)
			}
		})
	}
}

func benchmarkConfigMaps(b *testing.B, objects int) {
	const perUnit = 4 // plainApply counts in units of four objects
	c := setup(b).Cluster
	plain := plainApply(b, c, objects/perUnit)
	bench := startSingle(b, c, "large")
	bench.publish(b, map[string]string{"all.yaml": configMaps(objects, "first")})

	created := bench.create(b, []v1.Stage{{Name: "all", SourceRef: bench.source()}})
	b.ReportMetric(created.wall.Seconds(), "create-s")
	b.ReportMetric(created.wall.Seconds()/plain.Seconds(), "create-x-apply")
	b.ReportMetric(float64(created.requests)/float64(objects), "create-requests/object")

	idle := bench.pass(b)
	b.ReportMetric(idle.wall.Seconds(), "noop-s")
	b.ReportMetric(float64(idle.requests), "noop-requests")
	b.ReportMetric(idle.cpu.Seconds(), "noop-cpu-s")

	changed := measure(b, c, bench.reconciler, func() {
		artifact := bench.publish(b, map[string]string{
			"all.yaml": strings.Replace(configMaps(objects, "first"), `"first"`, `"second"`, 1),
		})
		waitAll(b, c, bench.namespace, 1, func(set *v1.StageSet) bool {
			return isReady(set) && set.Status.LastAppliedRevisions[bench.namespace+"/"+bench.name] == artifact.Revision
		})
	})
	b.ReportMetric(changed.wall.Seconds(), "change-s")
	b.ReportMetric(float64(changed.requests), "change-requests")
	b.ReportMetric(float64(usage(b, bench.reconciler).peak)/(1<<20), "peak-MiB")
	waitNone(b, bench.admin, bench.namespace)
}

func configMaps(count int, value string) string {
	var text strings.Builder
	for number := range count {
		fmt.Fprintf(&text, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: map-%04d}\ndata: {value: %q}\n", number, value)
	}
	return text.String()
}

// BenchmarkTenStages measures ten stages of one object: what a stage by itself costs.
func BenchmarkTenStages(b *testing.B) {
	const stages = 10
	for b.Loop() {
		c := setup(b).Cluster
		bench := startSingle(b, c, "stages")
		files := map[string]string{}
		var spec []v1.Stage
		for number := range stages {
			name := fmt.Sprintf("stage-%d", number)
			files[name+"/map.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\n"
			spec = append(spec, v1.Stage{Name: name, Path: "./" + name, SourceRef: bench.source()})
		}
		bench.publish(b, files)

		created := bench.create(b, spec)
		b.ReportMetric(created.wall.Seconds(), "create-s")
		b.ReportMetric(float64(created.requests), "create-requests")
		idle := bench.pass(b)
		b.ReportMetric(idle.wall.Seconds(), "noop-s")
		b.ReportMetric(float64(idle.requests), "noop-requests")
		waitNone(b, bench.admin, bench.namespace)
	}
}

// singleBench is one StageSet with an account and a source of its own, and a reconciler.
type singleBench struct {
	cluster         *cluster.Cluster
	admin           client.Client
	reconciler      *process.Process
	server          *artifacts.Server
	namespace, name string
}

func startSingle(b *testing.B, c *cluster.Cluster, name string) singleBench {
	b.Helper()
	namespace := c.Namespace(b, "bench")
	c.Apply(b, fmt.Sprintf(unitSetup, name, namespace, "cluster-admin"))
	return singleBench{
		cluster: c, admin: c.Client(b, v1.AddToScheme), server: artifacts.Start(b), namespace: namespace, name: name,
		reconciler: startReconciler(b, c, "127.0.0.1"),
	}
}

func (s singleBench) source() v1.SourceReference {
	return v1.SourceReference{Kind: v1.SourceKindGitRepository, Name: s.name}
}

func (s singleBench) publish(b *testing.B, files map[string]string) artifacts.Artifact {
	b.Helper()
	artifact := s.server.Put("gitrepository", s.namespace, s.name, artifacts.TarGz(b, files))
	publish(b, s.cluster, s.namespace, s.name, artifact)
	return artifact
}

func (s singleBench) stageSet() *v1.StageSet {
	set := &v1.StageSet{}
	set.Namespace, set.Name = s.namespace, s.name
	set.Spec.ServiceAccountName = s.name
	return set
}

// create measures from the creation of the StageSet until it is Ready.
func (s singleBench) create(b *testing.B, stages []v1.Stage) measurement {
	b.Helper()
	return measure(b, s.cluster, s.reconciler, func() {
		set := s.stageSet()
		set.Spec.Stages = stages
		if err := s.admin.Create(b.Context(), set); err != nil {
			b.Fatal(err)
		}
		waitAll(b, s.cluster, s.namespace, 1, isReady)
	})
}

// pass measures a pass of the StageSet, asked for by the annotation.
func (s singleBench) pass(b *testing.B) measurement {
	b.Helper()
	return measure(b, s.cluster, s.reconciler, func() {
		if err := requestPass(b.Context(), s.admin, s.stageSet()); err != nil {
			b.Fatal(err)
		}
		waitAll(b, s.cluster, s.namespace, 1, isHandled)
	})
}
