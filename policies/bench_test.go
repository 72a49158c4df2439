package policies_test

import (
	"fmt"
	"runtime"
	"testing"

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

// BenchmarkValidate evaluates many policies with one rule each.
func BenchmarkValidate(b *testing.B) {
	for _, n := range []int{1, 10, 50, 200} {
		set := compile(b, many(b, n, "")...)
		in := creating(stageSet(b, ""))
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				set.Validate(b.Context(), in)
			}
		})
	}
}
