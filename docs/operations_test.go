package docs_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// measured is the peak of memory in performance.md.
var measured = regexp.MustCompile(`peak memory at 1,000 units \| \d+–(\d+) MiB`)

// The sizes that operations.md calls the default are those of the chart, and what it calls measured is in performance.md.
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
	peak := measured.FindStringSubmatch(read(t, "performance.md"))
	if peak == nil {
		t.Fatal("performance.md does not say what is measured")
	}
	document := strings.Join(strings.Fields(read(t, "operations.md")), " ")
	for _, want := range []string{
		fmt.Sprintf(": the default | %s MiB | cpu: %s, memory: %s | memory: %s |",
			peak[1], requests.Cpu(), requests.Memory(), limits.Memory()),
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
