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
		content, err := json.MarshalIndent(newDashboard(t, program, rows), "", "  ")
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

// board is a dashboard. It has no uid, so that those of several releases do not collide.
type board struct {
	Title         string                                 `json:"title"`
	Description   string                                 `json:"description"`
	Tags          []string                               `json:"tags"`
	Timezone      string                                 `json:"timezone"`
	Time          dashboard.DashboardDashboardTime       `json:"time"`
	Refresh       string                                 `json:"refresh"`
	GraphTooltip  dashboard.DashboardCursorSync          `json:"graphTooltip"`
	SchemaVersion int                                    `json:"schemaVersion"`
	Templating    dashboard.DashboardDashboardTemplating `json:"templating"`
	Panels        []dashboard.PanelOrRowPanel            `json:"panels"`
}

// newDashboard is the dashboard of a program.
func newDashboard(t *testing.T, program string, rows []row) board {
	t.Helper()
	made := board{
		Title: program, Description: "What " + program + " measures: docs/metrics.md", Tags: []string{"stageset"},
		Timezone: common.TimeZoneBrowser, Time: dashboard.DashboardDashboardTime{From: "now-3h", To: "now"}, Refresh: "30s",
		GraphTooltip: dashboard.DashboardCursorSyncCrosshair, SchemaVersion: 42,
	}
	own := dashboard.StringOrArrayOfString{String: &program}
	for _, builder := range []cog.Builder[dashboard.VariableModel]{
		dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus"),
		variableOf("job", "Job", "label_values("+jobs[program]+", job)").
			Current(dashboard.VariableOption{Text: own, Value: own}),
		variableOf("namespace", "Namespace", "label_values("+namespaces[program]+`{job="$job"}, namespace)`).
			Multi(true).IncludeAll(true).AllValue(".*"),
	} {
		made.Templating.List = append(made.Templating.List, built(t, builder))
	}
	for _, row := range rows {
		made.add(t, row)
	}
	return made
}

// built is what a builder makes.
func built[T any](t *testing.T, builder cog.Builder[T]) T {
	t.Helper()
	made, err := builder.Build()
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// add puts a row below what there is: its panels from left to right, as many in a line as fit.
func (b *board) add(t *testing.T, r row) {
	t.Helper()
	const columns = 24
	widths := r.widths(columns)
	at := dashboard.GridPos{Y: b.height(), W: columns, H: 1}
	title := built(t, dashboard.NewRowBuilder(r.title).GridPos(at).Id(b.nextID()))
	b.Panels = append(b.Panels, dashboard.PanelOrRowPanel{RowPanel: &title})
	for _, p := range r.panels {
		made := built(t, newPanel(p, widths[p.kind]))
		if at.X += at.W; at.X+made.GridPos.W > columns {
			at.X, at.Y = 0, at.Y+at.H
		}
		at.W, at.H = made.GridPos.W, made.GridPos.H
		position := at
		made.GridPos, made.Id = &position, ptr.To(b.nextID())
		b.Panels = append(b.Panels, dashboard.PanelOrRowPanel{Panel: &made})
	}
}

// height is where the next row begins.
func (b *board) height() uint32 {
	height := uint32(0)
	for _, p := range b.Panels {
		if p.Panel != nil {
			height = max(height, p.Panel.GridPos.Y+p.Panel.GridPos.H)
		}
	}
	return height
}

func (b *board) nextID() uint32 { return uint32(len(b.Panels) + 1) }

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

// widths are the columns, of so many, that panels of each kind have in a row: numbers share a line, and of the others two or
// three do.
func (r row) widths(columns uint32) map[string]uint32 {
	numbers, others := 0, 0
	for _, panel := range r.panels {
		if panel.kind == "stat" {
			numbers++
		} else {
			others++
		}
	}
	width := columns / 2
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
func parseDashboard(t *testing.T, content string) board {
	t.Helper()
	var made board
	decoder := json.NewDecoder(strings.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&made); err != nil {
		t.Fatal(err)
	}
	var parts struct {
		Panels     []json.RawMessage                `json:"panels"`
		Templating struct{ List []json.RawMessage } `json:"templating"`
	}
	if err := json.Unmarshal([]byte(content), &parts); err != nil {
		t.Fatal(err)
	}
	// Where nothing is wrong, the strict readers return an error that says nothing, and leave out what they have read.
	for i, part := range parts.Panels {
		var strict dashboard.PanelOrRowPanel
		if err := strict.UnmarshalJSONStrict(part); err != nil && err.Error() != "" {
			t.Errorf("panel %d: %v", i, err)
		}
		if err := made.Panels[i].Validate(); err != nil {
			t.Errorf("panel %d: %v", i, err)
		}
	}
	for i, part := range parts.Templating.List {
		var strict dashboard.VariableModel
		if err := strict.UnmarshalJSONStrict(part); err != nil && err.Error() != "" {
			t.Errorf("variable %d: %v", i, err)
		}
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
