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
	metricRow     = regexp.MustCompile("(?m)^\\| `(stageset_[a-z_]+)` \\|(.*)\\|$")
	selector      = regexp.MustCompile(`\b(stageset_[a-z_]+)\{(.*?)\}`)
	matcher       = regexp.MustCompile(`(\w+)=~?"(.*?)"`)
	labelShown    = regexp.MustCompile(`\$labels\.(\w+)`)
	word          = regexp.MustCompile(`\w+`)
	runbookTitle  = regexp.MustCompile(`(?m)^## (\w+)$`)
	runbookOfNone = regexp.MustCompile(`(?m)^## \w+\s+(##|\z)`)
)

// Each alert is about metrics, labels and values that there are, and has a runbook; each runbook is of an alert.
func TestAlerts(t *testing.T) {
	decoder := yaml.NewDecoder(strings.NewReader(read(t, "stageset/files/alerts.yaml")))
	decoder.KnownFields(true)
	var alerts []alert
	if err := decoder.Decode(&alerts); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, a := range alerts {
		names = append(names, a.Alert)
		checkExpression(t, a)
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

// checkExpression looks for everything that an alert asks about in what docs/api.md says of the metric; a test holds that
// against the programs.
func checkExpression(t *testing.T, a alert) {
	t.Helper()
	rows := map[string][]string{}
	for _, match := range metricRow.FindAllStringSubmatch(read(t, "../docs/api.md"), -1) {
		rows[match[1]] = word.FindAllString(match[2], -1)
	}
	asks := func(metric, about string) {
		row, known := rows[metric]
		if !known {
			row, known = rows[metricSuffix.ReplaceAllString(metric, "")]
		}
		if !known {
			t.Errorf("%s: there is no metric %s", a.Alert, metric)
		}
		for _, wanted := range word.FindAllString(about, -1) {
			if !slices.Contains(row, wanted) {
				t.Errorf("%s: docs/api.md says nothing of %s of %s", a.Alert, wanted, metric)
			}
		}
	}
	for _, selected := range selector.FindAllStringSubmatch(a.Expr, -1) {
		for _, match := range matcher.FindAllStringSubmatch(selected[2], -1) {
			if match[1] != "job" {
				asks(selected[1], match[1]+" "+match[2])
			}
		}
		for _, match := range labelShown.FindAllStringSubmatch(a.Annotations["summary"], -1) {
			asks(selected[1], match[1])
		}
	}
	for _, name := range metricName.FindAllString(a.Expr, -1) {
		asks(name, "")
	}
	if !strings.Contains(a.Expr, `{job=`) {
		t.Errorf("%s is about all releases: %s", a.Alert, a.Expr)
	}
}
