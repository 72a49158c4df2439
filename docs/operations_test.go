package docs_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// The sizes that operations.md calls the default are those of the chart.
func TestSizesAreThoseOfTheChart(t *testing.T) {
	var values struct {
		Admission  struct{ Resources corev1.ResourceRequirements }
		Reconciler struct {
			Resources corev1.ResourceRequirements
			Cache     struct{ SizeLimit string }
			Flags     struct {
				Concurrent int
				CacheSize  int64 `json:"artifact-cache-size"`
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "../charts/stageset/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	r := values.Reconciler
	requests, limits := r.Resources.Requests, r.Resources.Limits
	admission := values.Admission.Resources.Requests
	document := strings.Join(strings.Fields(read(t, "operations.md")), " ")
	for _, want := range []string{
		fmt.Sprintf(": the default | 172 MiB | cpu: %s, memory: %s | memory: %s |", requests.Cpu(), requests.Memory(), limits.Memory()),
		fmt.Sprintf("**`concurrent`** of %d workers", r.Flags.Concurrent),
		fmt.Sprintf("`artifact-cache-size` (%d GiB)", r.Flags.CacheSize>>30),
		"`reconciler.cache.sizeLimit` is " + r.Cache.SizeLimit,
		fmt.Sprintf("`cpu: %s` is enough", admission.Cpu()),
		fmt.Sprintf("the default `memory: %s`", admission.Memory()),
	} {
		if !strings.Contains(document, want) {
			t.Errorf("operations.md lacks %q", want)
		}
	}
}
