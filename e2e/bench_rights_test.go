package e2e

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/stageset/stageset/api/v1"
)

// BenchmarkPreflight measures what it costs to know that an account lacks permissions for a release of 500 objects: from the
// creation of the StageSet until the condition Preflight says so, and another pass that finds the same. It is all that such
// a pass does but for reading the source and rendering.
func BenchmarkPreflight(b *testing.B) {
	const objects = 500
	for b.Loop() {
		c := setup(b).Cluster
		bench := startSingle(b, c, "preflight")
		name := "preflight-" + bench.namespace
		c.Apply(b, fmt.Sprintf(benchReader, name, bench.namespace, bench.name))
		bench.publish(b, map[string]string{"all.yaml": configMaps(objects, "first")})
		lacking := func(set *v1.StageSet) bool {
			return meta.IsStatusConditionFalse(set.Status.Conditions, v1.ConditionPreflight)
		}
		set := bench.stageSet()
		set.Spec.ServiceAccountName = "reader"
		set.Spec.Stages = []v1.Stage{{Name: "all", SourceRef: bench.source()}}
		first := measure(b, c, bench.reconciler, func() {
			if err := bench.admin.Create(b.Context(), set); err != nil {
				b.Fatal(err)
			}
			waitAll(b, c, bench.namespace, 1, lacking)
		})
		b.ReportMetric(1000*first.wall.Seconds(), "first-ms")
		b.ReportMetric(float64(first.requests), "first-requests")
		again := measure(b, c, bench.reconciler, func() {
			if err := requestPass(b.Context(), bench.admin, bench.stageSet()); err != nil {
				b.Fatal(err)
			}
			waitAll(b, c, bench.namespace, 1, isHandled)
		})
		b.ReportMetric(1000*again.wall.Seconds(), "again-ms")
		b.ReportMetric(float64(again.requests), "again-requests")
		b.ReportMetric(1000*again.cpu.Seconds(), "again-cpu-ms")
		waitNone(b, bench.admin, bench.namespace)
	}
}

// benchReader is an account that may read sources and nothing else.
const benchReader = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: %[2]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: %[1]s, namespace: %[2]s}
rules: [{apiGroups: [source.toolkit.fluxcd.io], resources: [gitrepositories], resourceNames: [%[3]s], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: %[1]s, namespace: %[2]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: %[1]s}
subjects: [{kind: ServiceAccount, name: reader, namespace: %[2]s}]
`
