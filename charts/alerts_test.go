package charts_test

import (
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/metrics"
)

// alert is a rule of Prometheus.
type alert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// rules are a rule file of Prometheus.
type rules struct {
	Groups []struct {
		Name  string  `yaml:"name"`
		Rules []alert `yaml:"rules"`
	} `yaml:"groups"`
}

var (
	labelShown    = regexp.MustCompile(`\$labels\.(\w+)`)
	quantileAbove = regexp.MustCompile(`^histogram_quantile\(.* > ([\d.]+)$`)
	runbookTitle  = regexp.MustCompile(`(?m)^## (\w+)$`)
	runbookOfNone = regexp.MustCompile(`(?m)^## \w+\s+(##|\z)`)
)

// Each alert is about metrics, labels and values that there are, and has a runbook; each runbook is of an alert.
func TestAlerts(t *testing.T) {
	known := documentedMetrics(t)
	var names []string
	for _, a := range alerts(t) {
		names = append(names, a.Alert)
		checkExpression(t, a, known)
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

// alerts are those of the chart.
func alerts(t *testing.T) []alert {
	t.Helper()
	decoder := yaml.NewDecoder(strings.NewReader(read(t, "stageset/files/alerts.yaml")))
	decoder.KnownFields(true)
	var file rules
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	return file.Groups[0].Rules
}

// checkExpression looks for everything that an alert asks about in what the programs measure.
func checkExpression(t *testing.T, a alert, known map[string]metrics.Metric) {
	t.Helper()
	var shown []string
	for _, match := range labelShown.FindAllStringSubmatch(a.Annotations["summary"], -1) {
		shown = append(shown, match[1])
	}
	asked := parseQuery(a.Expr)
	for _, problem := range asked.problems(known, shown) {
		t.Errorf("%s: %s", a.Alert, problem)
	}
	for _, name := range asked.metrics {
		if _, has := apiServerMetrics[name]; has {
			continue // that is one for all releases
		}
		if !slices.ContainsFunc(asked.matchers[name], func(matcher [3]string) bool { return matcher[0] == "job" }) {
			t.Errorf("%s is about all releases: %s", a.Alert, a.Expr)
		}
	}
	// Above its largest bound a histogram tells nothing apart: no quantile is ever more.
	if above := quantileAbove.FindStringSubmatch(a.Expr); above != nil {
		limit, err := strconv.ParseFloat(above[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		if most := known[metrics.Base(asked.metrics[0], known)].Most; most <= limit {
			t.Errorf("%s never fires: the largest bound of %s is %g", a.Alert, asked.metrics[0], most)
		}
	}
}

// Prometheus takes the alerts, and they fire when they are to, and not otherwise.
func TestAlertsFire(t *testing.T) {
	promtool(t, "check", "rules", "--lint-fatal", "stageset/files/alerts.yaml")
	promtool(t, "test", "rules", "alerts.test.yaml")
}

// Each alert is shown to fire, and not to fire.
func TestEveryAlertIsTested(t *testing.T) {
	var file struct {
		Tests []struct {
			Rules []struct {
				Name   string `yaml:"alertname"`
				Alerts []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "alerts.test.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, rule := range test.Rules {
			fires[rule.Name] = fires[rule.Name] || len(rule.Alerts) > 0
			silent[rule.Name] = silent[rule.Name] || len(rule.Alerts) == 0
		}
	}
	for _, alert := range alerts(t) {
		if !fires[alert.Alert] || !silent[alert.Alert] {
			t.Errorf("%s is shown to fire: %t, and not to: %t", alert.Alert, fires[alert.Alert], silent[alert.Alert])
		}
	}
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := cluster.Binary("promtool")
	if err != nil {
		t.Fatal(err)
	}
	if output, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, output)
	}
}
