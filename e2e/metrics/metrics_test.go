package metrics

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const document = "# Metrics\n\n## program\n\n" +
	"| metric | type | labels | meaning | alerts |\n| --- | --- | --- | --- | --- |\n" +
	"| `stageset_a_seconds` | histogram, 5e-05 to 0.25 seconds | `policy`: any; `verdict`: `allowed`, `denied` | A. |  |\n" +
	"| `stageset_b_total` | counter |  | B. |  |\n\n## other\n\n| `stageset_c` | gauge |  | C. |  |\n"

func TestDocumented(t *testing.T) {
	got, err := Documented(document, "program")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]Metric{
		"stageset_a_seconds": {
			Kind: "histogram", Most: .25, Labels: map[string][]string{"policy": nil, "verdict": {"allowed", "denied"}},
		},
		"stageset_b_total": {Kind: "counter", Labels: map[string][]string{}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	if _, err := Documented(document, "another"); err == nil {
		t.Error("a section was found that is not there")
	}
}

func TestCompare(t *testing.T) {
	documented, err := Documented(document, "program")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		served            string
		problems, missing []string
	}{
		"as documented": {served: `
# TYPE stageset_a_seconds histogram
stageset_a_seconds_bucket{policy="p",verdict="allowed",le="0.25"} 1
stageset_a_seconds_sum{policy="p",verdict="allowed"} 1
stageset_a_seconds_count{policy="p",verdict="allowed"} 1
# TYPE stageset_b_total counter
stageset_b_total 2
# TYPE go_goroutines gauge
go_goroutines 3`},
		"nothing": {missing: []string{"stageset_a_seconds", "stageset_b_total"}},
		"otherwise": {
			served: `
# TYPE stageset_a_seconds histogram
stageset_a_seconds_count{policy="p",verdict="shed"} 1
# TYPE stageset_b_total gauge
stageset_b_total{kind="x"} 2
# TYPE stageset_c gauge
stageset_c 3`,
			problems: []string{
				`stageset_a_seconds has the verdict "shed", which is not documented`,
				"stageset_b_total has the labels [kind]",
				"stageset_b_total is a gauge, and documented as a counter",
				"stageset_c is served and not documented",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			problems, missing := Compare(documented, test.served)
			if diff := cmp.Diff(test.problems, problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.missing, missing); diff != "" {
				t.Errorf("missing (-want +got):\n%s", diff)
			}
		})
	}
}
