package e2e

import (
	"testing"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/artifacts"
	"github.com/stageset/stageset/e2e/cluster"
)

// BenchmarkRemote measures what it costs that a target is another cluster: the units of BenchmarkUnits are applied to this
// cluster, and then as many to another one, by the same reconciler. x-local is the ratio of the wall times. Requests are
// those to both clusters together.
func BenchmarkRemote(b *testing.B) {
	const units = 100
	for b.Loop() {
		bench := startUnits(b, setup(b).Cluster, units)
		here := benchmarkTarget(b, bench, "local")
		there := benchmarkTarget(b, bench.remote(b), "remote")
		b.ReportMetric(there.created.wall.Seconds()/here.created.wall.Seconds(), "create-x-local")
		b.ReportMetric(there.idle.wall.Seconds()/here.idle.wall.Seconds(), "noop-x-local")
	}
}

// remote is as many units again, with accounts of their own, that are applied to the other cluster.
func (u unitBench) remote(b *testing.B) unitBench {
	b.Helper()
	u.namespace = u.cluster.Namespace(b, "bench")
	prepareUnits(b, u.cluster, artifacts.Start(b), u.namespace, u.units)
	(&tenant{suite: setup(b), namespace: u.namespace}).remote(b)
	u.kubeConfig = &v1.KubeConfigReference{SecretRef: &v1.SecretKeyReference{Name: "remote"}}
	return u
}

// targetCosts are what units cost that are applied to one cluster.
type targetCosts struct{ created, idle measurement }

// benchmarkTarget measures the units from create to all Ready, and a pass in which nothing changed.
func benchmarkTarget(b *testing.B, bench unitBench, target string) targetCosts {
	b.Helper()
	costs := targetCosts{
		created: withOtherCluster(b, func() measurement { return bench.create(b) }),
		idle:    withOtherCluster(b, func() measurement { return bench.pass(b) }),
	}
	units := float64(bench.units)
	b.ReportMetric(costs.created.wall.Seconds(), target+"-create-s")
	b.ReportMetric(float64(costs.created.requests)/units, target+"-create-requests/unit")
	b.ReportMetric(costs.created.cpu.Seconds()/units, target+"-create-cpu-s/unit")
	b.ReportMetric(float64(costs.idle.requests)/units, target+"-noop-requests/unit")
	b.ReportMetric(costs.idle.cpu.Seconds()/units, target+"-noop-cpu-s/unit")
	waitNone(b, bench.admin, bench.namespace)
	return costs
}

// withOtherCluster adds the requests to the other cluster to those of a measurement.
func withOtherCluster(b *testing.B, measured func() measurement) measurement {
	b.Helper()
	mark := otherCluster(b).Audit(b)
	result := measured()
	result.requests += len(mark.Since(b, cluster.ByUser(hubUser), func(e cluster.AuditEvent) bool { return e.Verb != "watch" }))
	return result
}
