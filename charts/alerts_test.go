package charts_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// alert is a rule of Prometheus.
type alert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

var (
	metricName    = regexp.MustCompile(`\bstageset_[a-z_]+`)
	metricSuffix  = regexp.MustCompile(`_(bucket|count|sum)$`)
	metricRow     = regexp.MustCompile("(?m)^\\| `(stageset_[a-z_]+)` \\|")
	runbookTitle  = regexp.MustCompile(`(?m)^## (\w+)$`)
	runbookOfNone = regexp.MustCompile(`(?m)^## \w+\s+(##|\z)`)
)

// Each alert is about metrics that there are, and has a runbook; each runbook is of an alert.
func TestAlerts(t *testing.T) {
	decoder := yaml.NewDecoder(strings.NewReader(read(t, "stageset/files/alerts.yaml")))
	decoder.KnownFields(true)
	var alerts []alert
	if err := decoder.Decode(&alerts); err != nil {
		t.Fatal(err)
	}
	var known []string // a test holds docs/api.md against the programs
	for _, match := range metricRow.FindAllStringSubmatch(read(t, "../docs/api.md"), -1) {
		known = append(known, match[1])
	}
	var names []string
	for _, a := range alerts {
		names = append(names, a.Alert)
		for _, name := range metricName.FindAllString(a.Expr, -1) {
			if !slices.Contains(known, name) && !slices.Contains(known, metricSuffix.ReplaceAllString(name, "")) {
				t.Errorf("%s: there is no metric %s", a.Alert, name)
			}
		}
		if !strings.Contains(a.Expr, `{job=`) {
			t.Errorf("%s is about all releases: %s", a.Alert, a.Expr)
		}
		if severity := a.Labels["severity"]; severity != "warning" && severity != "critical" {
			t.Errorf("%s has the severity %q", a.Alert, severity)
		}
		if a.Annotations["summary"] == "" {
			t.Errorf("%s says nothing", a.Alert)
		}
	}
	runbooks := read(t, "../docs/alerts.md")
	var titles []string
	for _, match := range runbookTitle.FindAllStringSubmatch(runbooks, -1) {
		titles = append(titles, match[1])
	}
	if diff := cmp.Diff(names, titles); diff != "" {
		t.Errorf("runbooks (-alerts +docs/alerts.md):\n%s", diff)
	}
	if empty := runbookOfNone.FindString(runbooks); empty != "" {
		t.Errorf("docs/alerts.md says nothing below %s", empty)
	}
}
