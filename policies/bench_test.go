package policies_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

// many are n policies with one rule each, and, if variables is set, one variable.
func many(t testing.TB, n int, variables string) []v1alpha1.StageSetPolicy {
	t.Helper()
	list := make([]v1alpha1.StageSetPolicy, n)
	for i := range list {
		list[i] = rule(t, fmt.Sprintf("p%d", i), "object.spec.stages.all(s, s.sourceRef.?namespace.orValue('') in ['', 'team-a'])",
			variables)
	}
	return list
}

// TestMemory: a policy without variables shares its environment with all others, so that many are cheap (P-50).
func TestMemory(t *testing.T) {
	const n, most = 200, 100 << 10
	list := many(t, n, "")
	// What is built once is not a policy's.
	kept := []*policies.Set{compile(t, list[0])}
	before := heap()
	kept = append(kept, compile(t, list...))
	each := (heap() - before) / n
	runtime.KeepAlive(kept)
	if each > most {
		t.Errorf("a policy keeps %d bytes, more than %d", each, most)
	}
	t.Logf("a policy keeps %d bytes", each)
}

func heap() int {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// BenchmarkCompile compiles a policy with one rule, with and without an environment of its own.
func BenchmarkCompile(b *testing.B) {
	for name, variables := range map[string]string{"plain": "", "variables": "variables: [{name: v, expression: '1'}]"} {
		list := many(b, 1, variables)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				compile(b, list...)
			}
		})
	}
}

// stages is a StageSet with 20 stages.
func stages(t testing.TB) *unstructured.Unstructured {
	object := stageSet(t, "")
	list := make([]any, 20)
	for i := range list {
		list[i] = map[string]any{
			"name": fmt.Sprintf("stage-%d", i), "path": "./", "prune": true,
			"sourceRef": map[string]any{"kind": "GitRepository", "name": "app", "namespace": "team-a"},
		}
	}
	object.Object["spec"] = map[string]any{"serviceAccountName": "deployer", "stages": list}
	return object
}

// BenchmarkValidate evaluates many policies with one rule each on a StageSet with 20 stages.
func BenchmarkValidate(b *testing.B) {
	for _, n := range []int{1, 10, 50, 200} {
		set := compile(b, many(b, n, "")...)
		in := creating(stages(b))
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				set.Validate(b.Context(), in)
			}
		})
	}
}

// BenchmarkValidateManifest evaluates many policies with one rule each on one object, of a kind that they are about and of
// one that they are not.
func BenchmarkValidateManifest(b *testing.B) {
	const target = "target: Manifest\nmatchConstraints: {resourceRules: [{apiGroups: [''], kinds: [ConfigMap]}]}"
	for _, n := range []int{1, 10, 50} {
		list := make([]v1alpha1.StageSetPolicy, n)
		for i := range list {
			list[i] = rule(b, fmt.Sprintf("p%d", i), "object.metadata.?namespace.orValue('') != 'kube-system'", target)
		}
		set := compile(b, list...)
		for _, kind := range []string{"ConfigMap", "Service"} {
			in := policies.ManifestInput{
				SourceInput: policies.SourceInput{StageSet: stages(b), Stage: "stage-0", Namespace: namespace("team-a", nil)},
				Object: &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": "a", "namespace": "team-a"},
				}},
			}
			b.Run(fmt.Sprintf("%d/%s", n, kind), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					set.ValidateManifest(b.Context(), in)
				}
			})
		}
	}
}

// BenchmarkCompileMany is what an installation with a thousand policies pays when it starts, which is not to take ten
// seconds, and when one of them changes.
func BenchmarkCompileMany(b *testing.B) {
	list := many(b, 1000, "")
	for i := range list {
		list[i].UID, list[i].Generation = types.UID(list[i].Name), 1
	}
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			ctx, cancel := context.WithTimeout(b.Context(), 10*time.Second)
			if _, err := policies.Compile(ctx, list, policies.Options{}); err != nil {
				b.Fatal(err)
			}
			cancel()
		}
	})
	before := heap()
	set := compile(b, list...)
	each := float64(heap()-before) / float64(len(list))
	b.Run("one", func(b *testing.B) {
		for b.Loop() {
			list[0].Generation++
			if _, err := set.With(b.Context(), list, nil); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(each/1024, "KiB/policy")
	})
}
