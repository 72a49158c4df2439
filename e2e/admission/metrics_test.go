package admission_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/metrics"
)

// P-52: everything that docs/metrics.md lists of this program is measured, by the labels that tell which policy it is: which one
// is slow, costs much, cannot be evaluated, or refuses what.
func TestEveryMetricIsServed(t *testing.T) {
	i := install(t)
	i.mustCreate(t, i.stageSet(t, "stored", validSpec+"interval: 2h"))
	i.policy(t, "broken", "validations: [{name: r, expression: 'object.spec. == 1', message: m}]")
	i.policy(t, "limits", limits)
	i.installWebhooks(t)
	r := i.start(t)
	if err := refused(i.client.Create(t.Context(), i.stageSet(t, "new", validSpec+"interval: 2h")), "limits/interval"); err != nil {
		t.Fatal(err)
	}
	own := documentedMetrics(t, "stageset-admission")
	all := documentedMetrics(t, "stageset-admission", metrics.Libraries)
	cluster.Eventually(t, func(context.Context) error {
		served := r.scrape(t)
		problems, _ := metrics.Compare(all, served)
		_, missing := metrics.Compare(own, served)
		if len(problems)+len(missing) > 0 {
			return fmt.Errorf("not as documented: %v, not served: %v", problems, missing)
		}
		return nil
	})
	fastest := `stageset_policy_evaluation_seconds_bucket{policy="` + i.tenant + `-limits",target="StageSet",le="5e-05"}`
	if _, found := r.measure(t)[fastest]; !found {
		t.Error("the histogram does not begin at 50 µs")
	}
}

// documentedMetrics are those of sections of docs/metrics.md.
func documentedMetrics(t *testing.T, sections ...string) map[string]metrics.Metric {
	t.Helper()
	document, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented, err := metrics.Documented(string(document), sections...)
	if err != nil {
		t.Fatal(err)
	}
	return documented
}
