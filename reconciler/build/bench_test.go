package build

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/stageset/stageset/api/v1"
)

// release is a directory of n Deployments with their ConfigMaps, plain or as a kustomization.
func release(n int, kustomized bool) map[string]string {
	files := map[string]string{}
	var names []string
	for i := range n {
		name := fmt.Sprintf("app-%d.yaml", i)
		names = append(names, name)
		files[name] = fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: app-%[1]d, labels: {app: app-%[1]d}}
spec:
  replicas: 2
  selector: {matchLabels: {app: app-%[1]d}}
  template:
    metadata: {labels: {app: app-%[1]d}}
    spec:
      containers:
      - name: web
        image: example.com/app:1.0
        env: [{name: A, value: "1"}, {name: B, value: "2"}]
        ports: [{containerPort: 8080}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: app-%[1]d}
data: {a: "1", b: "2"}
`, i)
	}
	if kustomized {
		files["kustomization.yaml"] = "resources: [" + strings.Join(names, ", ") + "]\npatches:\n" +
			"- patch: |-\n    apiVersion: apps/v1\n    kind: Deployment\n    metadata: {name: any}\n    spec: {replicas: 3}\n  target: {kind: Deployment}\n"
	}
	return files
}

// BenchmarkBuild compares a plain directory, the same as a kustomization, and with a stage's patch.
func BenchmarkBuild(b *testing.B) {
	patch := v1.Patch{Patch: "spec: {replicas: 3}", Target: &v1.PatchTarget{Kind: "Deployment"}}
	warmUp()
	for _, n := range []int{2, 100} {
		for name, c := range map[string]struct {
			kustomized bool
			opts       Options
		}{"plain": {}, "kustomize": {kustomized: true}, "patched": {opts: Options{Patches: []v1.Patch{patch}}}} {
			files := artifact(release(n, c.kustomized))
			b.Run(fmt.Sprintf("%s/%d", name, 2*n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := Build(context.Background(), files, c.opts); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// The OpenAPI schema of kustomize is parsed once for the process and not by each build, which would show in what a build
// allocates: parsing takes over 40 MiB.
func TestKustomizeParsesItsSchemaOnce(t *testing.T) {
	warmUp()
	files := artifact(release(2, true))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := Build(context.Background(), files, Options{}); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if allocated := (after.TotalAlloc - before.TotalAlloc) >> 20; allocated > 8 {
		t.Errorf("a build of four objects allocates %d MiB", allocated)
	}
}
