package admission_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stageset/stageset/e2e/cluster"
)

// labelName finds the names of the labels of a series, but for the bounds of histograms.
var labelName = regexp.MustCompile(`([a-z_]+)="`)

// P-52: everything that docs/api.md lists of this program is measured, by the labels that tell which policy it is: which one is
// slow, costs much, cannot be evaluated, or refuses what.
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
	want := map[string]string{
		"stageset_admission_seconds_count":         "operation verdict",
		"stageset_audit_violations":                "policy",
		"stageset_certificate_expiry_seconds":      "kind",
		"stageset_certificate_trusted":             "",
		"stageset_policies":                        "state",
		"stageset_policy_cost_units_count":         "policy",
		"stageset_policy_decisions_total":          "action enforcement_point policy",
		"stageset_policy_errors_total":             "kind policy",
		"stageset_policy_evaluation_seconds_count": "policy target",
	}
	cluster.Eventually(t, func(context.Context) error {
		found := map[string]string{}
		for series := range r.measure(t) {
			name, _, _ := strings.Cut(series, "{")
			if !strings.HasPrefix(name, "stageset_") || strings.HasSuffix(name, "_bucket") || strings.HasSuffix(name, "_sum") {
				continue
			}
			var labels []string
			for _, match := range labelName.FindAllStringSubmatch(series, -1) {
				labels = append(labels, match[1])
			}
			slices.Sort(labels)
			found[name] = strings.Join(labels, " ")
		}
		if diff := cmp.Diff(want, found); diff != "" {
			return errors.New("metrics, with their labels (-want +got):\n" + diff)
		}
		return nil
	})
	fastest := `stageset_policy_evaluation_seconds_bucket{policy="` + i.tenant + `-limits",target="StageSet",le="5e-05"}`
	if _, found := r.measure(t)[fastest]; !found {
		t.Error("the histogram does not begin at 50 µs")
	}
}
