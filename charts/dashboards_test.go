package charts_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	tablepanel "github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"k8s.io/utils/ptr"
)

// The dashboards are generated: "make generate". What is in them is in panels_test.go.
func TestDashboards(t *testing.T) {
	for program, rows := range dashboards {
		made, err := newDashboard(program, rows).Build()
		if err != nil {
			t.Fatal(err)
		}
		for i, panel := range made.Panels {
			if id := uint32(i + 1); panel.Panel != nil {
				panel.Panel.Id = &id
			} else {
				panel.RowPanel.Id = id
			}
		}
		content, err := json.MarshalIndent(made, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		content = append(content, '\n')
		name := filepath.Join("files", "dashboards", program+".json")
		if *write != "" {
			path := filepath.Join(*write, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o644)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if diff := cmp.Diff(string(content), read(t, filepath.Join("stageset", name))); diff != "" {
			t.Errorf("%s, run \"make generate\" (-want +got):\n%s", name, diff)
		}
	}
}

// datasource is whatever Prometheus who looks has chosen.
var datasource = common.DataSourceRef{Type: ptr.To("prometheus"), Uid: ptr.To("${datasource}")}

// newDashboard is the dashboard of a program. It has no uid, so that those of several releases do not collide.
func newDashboard(program string, rows []row) *dashboard.DashboardBuilder {
	made := dashboard.NewDashboardBuilder(program).
		Description("What "+program+" measures: docs/metrics.md").
		Tags([]string{"stageset"}).Time("now-3h", "now").Refresh("30s").Timezone(common.TimeZoneBrowser).
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus")).
		WithVariable(variableOf("job", "Job", "label_values("+jobs[program]+", job)").
			Current(dashboard.VariableOption{
				Text: dashboard.StringOrArrayOfString{String: &program}, Value: dashboard.StringOrArrayOfString{String: &program},
			})).
		WithVariable(variableOf("namespace", "Namespace", "label_values("+namespaces[program]+`{job="$job"}, namespace)`).
			Multi(true).IncludeAll(true).AllValue(".*"))
	for _, row := range rows {
		made.WithRow(dashboard.NewRowBuilder(row.title))
		widths := row.widths()
		for _, panel := range row.panels {
			made.WithPanel(newPanel(panel, widths[panel.kind]))
		}
	}
	return made
}

// jobs are the metrics that tell which jobs there are of a program, and namespaces those whose namespaces its dashboard is
// about: those of StageSets, or of the program.
var (
	jobs = map[string]string{
		"stageset-reconciler": "stageset_queue_depth", "stageset-admission": "stageset_certificate_trusted",
	}
	namespaces = map[string]string{
		"stageset-reconciler": "stageset_ready", "stageset-admission": "stageset_certificate_trusted",
	}
)

func variableOf(name, label, query string) *dashboard.QueryVariableBuilder {
	return dashboard.NewQueryVariableBuilder(name).Label(label).Datasource(datasource).
		Query(dashboard.StringOrMap{String: &query}).Definition(query).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).Sort(dashboard.VariableSortAlphabeticalAsc)
}

// newPanel is a panel of that many columns.
func newPanel(p panel, width uint32) cog.Builder[dashboard.Panel] {
	const height = 8
	var targets []cog.Builder[variants.Dataquery]
	for i, asked := range p.queries {
		target := prometheus.NewDataqueryBuilder().Datasource(datasource).Expr(asked.expr).RefId(string(rune('A' + i)))
		if asked.legend != "" {
			target.LegendFormat(asked.legend)
		}
		switch p.kind {
		case "table":
			target.Instant().Format(prometheus.PromQueryFormatTable)
		case "stat":
			target.Instant()
		default:
			target.Range()
		}
		targets = append(targets, target)
	}
	switch p.kind {
	case "stat":
		return stat.NewPanelBuilder().Title(p.title).Description(p.description).Datasource(datasource).
			Span(width).Height(height / 2).GraphMode(common.BigValueGraphModeNone).Targets(targets).
			Orientation(common.VizOrientationAuto).
			ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"}))
	case "table":
		return tablepanel.NewPanelBuilder().Title(p.title).Description(p.description).Datasource(datasource).
			Span(width).Height(height).Targets(targets).
			Footer(common.NewTableFooterOptionsBuilder().Reducer([]string{})).
			WithTransformation(dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{
				"excludeByName": map[string]bool{"Time": true, "Value": true},
			}})
	}
	return timeseries.NewPanelBuilder().Title(p.title).Description(p.description).Datasource(datasource).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeList).
			Placement(common.LegendPlacementBottom).Calcs([]string{})).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending)).
		Unit(p.unit).Min(0).FillOpacity(10).ShowPoints(common.VisibilityModeNever).
		Span(width).Height(height).Targets(targets)
}

// widths are the columns, of 24, that panels of each kind have in a row: numbers share a line, and of the others two or
// three do.
func (r row) widths() map[string]uint32 {
	const columns = 24
	numbers, others := 0, 0
	for _, panel := range r.panels {
		if panel.kind == "stat" {
			numbers++
		} else {
			others++
		}
	}
	width := uint32(columns / 2)
	if others%3 == 0 {
		width = columns / 3
	}
	return map[string]uint32{"stat": columns / uint32(max(numbers, 1)), "table": width, "timeseries": width}
}

// Everything that a dashboard asks for is measured, Grafana knows everything that it says, Prometheus takes its queries, and
// it is bound to no data source, installation or release.
func TestDashboardsAskForWhatThereIs(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	for program := range dashboards {
		content := read(t, filepath.Join("stageset", "files", "dashboards", program+".json"))
		made := parseDashboard(t, content)
		if made.Uid != nil || made.Id != nil {
			t.Errorf("%s has a uid or an id, which another release has too", program)
		}
		for _, match := range regexp.MustCompile(`"uid": "(.*)"`).FindAllStringSubmatch(content, -1) {
			if match[1] != *datasource.Uid {
				t.Errorf("%s is bound to the data source %s", program, match[1])
			}
		}
		var recorded strings.Builder // as rules, because promtool checks rules
		recorded.WriteString("groups:\n- name: queries\n  rules:\n")
		for _, found := range made.Panels {
			switch {
			case found.Panel != nil:
				recorded.WriteString(checkPanel(t, program, found.Panel))
			case found.RowPanel == nil:
				t.Errorf("%s has something that is neither a panel nor a row", program)
			}
		}
		path := filepath.Join(t.TempDir(), "queries.yaml")
		if err := os.WriteFile(path, []byte(recorded.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		promtool(t, "check", "rules", "--lint=none", path)
	}
}

// parseDashboard reads a dashboard, in which there must be nothing that Grafana does not know.
func parseDashboard(t *testing.T, content string) dashboard.Dashboard {
	t.Helper()
	var strict, made dashboard.Dashboard
	// Where nothing is wrong, the strict reader returns an error that says nothing, and leaves out what it has read.
	if err := strict.UnmarshalJSONStrict([]byte(content)); err != nil && err.Error() != "" {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(content), &made); err != nil {
		t.Fatal(err)
	}
	if err := made.Validate(); err != nil {
		t.Fatal(err)
	}
	return made
}

// checkPanel checks the queries of a panel, and returns rules that record them.
func checkPanel(t *testing.T, program string, checked *dashboard.Panel) string {
	t.Helper()
	known := documentedMetrics(t)
	var recorded strings.Builder
	if len(checked.Targets) == 0 {
		t.Errorf("%s, %s asks for nothing", program, *checked.Title)
	}
	for i, target := range checked.Targets {
		asked := target.(*prometheus.Dataquery)
		for _, problem := range parseQuery(asked.Expr).problems(known, legendLabels(asked.LegendFormat)) {
			t.Errorf("%s, %s: %s", program, *checked.Title, problem)
		}
		if !strings.Contains(asked.Expr, `{job="$job"`) {
			t.Errorf("%s, %s is about all releases: %s", program, *checked.Title, asked.Expr)
		}
		expression := strings.ReplaceAll(asked.Expr, "$__rate_interval", "5m")
		fmt.Fprintf(&recorded, "  - {record: %q, expr: %q}\n",
			fmt.Sprintf("panel:%d:%d", *checked.Id, i), variable.ReplaceAllString(expression, "any"))
	}
	return recorded.String()
}

// legendLabels are the labels that a legend shows.
func legendLabels(legend *string) []string {
	var labels []string
	for _, match := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(ptr.Deref(legend, ""), -1) {
		labels = append(labels, match[1])
	}
	return labels
}
