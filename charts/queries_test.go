package charts_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stageset/stageset/e2e/metrics"
)

// targetLabels are those that Prometheus gives to everything that it reads from a Pod.
var targetLabels = []string{"job", "instance", "namespace", "pod", "container"}

// apiServerMetrics are those of API servers that alerts are about.
var apiServerMetrics = map[string]metrics.Metric{
	"apiserver_admission_webhook_rejection_count": {Kind: "counter", Labels: map[string][]string{
		"name": nil, "type": {"admit", "validating"}, "operation": nil, "rejection_code": nil,
		"error_type": {"calling_webhook_error", "apiserver_internal_error", "no_error"},
	}},
	"apiserver_admission_webhook_fail_open_count": {Kind: "counter", Labels: map[string][]string{
		"name": nil, "type": {"admit", "validating"},
	}},
}

// documentedMetrics are all of docs/metrics.md, those of API servers, and what Prometheus itself has of everything that it
// reads.
func documentedMetrics(t *testing.T) map[string]metrics.Metric {
	t.Helper()
	known, err := metrics.Documented(read(t, "../docs/metrics.md"), "stageset-admission", "stageset-reconciler", metrics.Libraries)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(known, apiServerMetrics)
	known["up"] = metrics.Metric{Kind: "gauge"}
	// Reasons are documented where users look for them.
	reasons := []string{"Deleted", "Error"}
	for _, match := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(read(t, "../docs/reasons.md"), -1) {
		reasons = append(reasons, match[1])
	}
	known["stageset_ready"].Labels["reason"] = reasons
	known["stageset_reconcile_total"].Labels["reason"] = reasons
	return known
}

var (
	token    = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[a-zA-Z_:$][\w:$]*|\d[\w.]*|=~|!~|!=|[^\s\w]`)
	variable = regexp.MustCompile(`\$(?:\w+|\{\w+\})`)
	operator = regexp.MustCompile(`^(?:=|!=|=~|!~)$`)
)

// keywords of PromQL that are not followed by what they apply to in parentheses.
var keywords = []string{"and", "or", "unless", "bool", "offset", "inf", "nan", "atan2"}

// grouping keywords have a list of labels.
var grouping = []string{"by", "without", "on", "ignoring", "group_left", "group_right"}

// query is what an expression asks Prometheus for.
type query struct {
	// selectors are the metrics, with "label operator value" of their matchers.
	metrics  []string
	matchers map[string][][3]string
	// labels are those that are grouped by.
	labels []string
}

// parseQuery reads an expression. It knows just enough of PromQL to find names: promtool says whether it is one.
func parseQuery(expression string) query {
	found := query{matchers: map[string][][3]string{}}
	tokens := token.FindAllString(expression, -1)
	at := func(i int) string {
		if i < len(tokens) {
			return tokens[i]
		}
		return ""
	}
	until := func(i int, end string) int {
		return i + slices.Index(append(slices.Clone(tokens[i:]), end), end)
	}
	for i := 0; i < len(tokens); i++ {
		word := tokens[i]
		switch {
		case slices.Contains(grouping, word) && at(i+1) == "(":
			end := until(i, ")")
			for _, label := range tokens[i+2 : min(end, len(tokens))] {
				if label != "," {
					found.labels = append(found.labels, label)
				}
			}
			i = end
		case word == "[":
			i = until(i, "]")
		case !regexp.MustCompile(`^[a-zA-Z_:]`).MatchString(word), at(i+1) == "(":
		case slices.Contains(keywords, word), slices.Contains(grouping, word):
		case slices.Contains(grouping, at(i+1)): // an aggregation before its argument
		default:
			found.metrics = append(found.metrics, word)
			if at(i+1) != "{" {
				continue
			}
			end := until(i, "}")
			for j := i + 2; j+2 < end+1 && j+2 < len(tokens); j++ {
				if operator.MatchString(tokens[j+1]) {
					found.matchers[word] = append(found.matchers[word],
						[3]string{tokens[j], tokens[j+1], strings.Trim(tokens[j+2], `"`)})
				}
			}
			i = end
		}
	}
	return found
}

func TestParseQuery(t *testing.T) {
	got := parseQuery(`histogram_quantile(0.99, sum by (le, step) (rate(a_bucket{job="x",step=~"b|c"}[10m]))) > 60 and on (job)
		absent(up{job="$job"} == 1) or sum(c_total) by (kind) offset 5m`)
	want := query{
		metrics: []string{"a_bucket", "up", "c_total"},
		matchers: map[string][][3]string{
			"a_bucket": {{"job", "=", "x"}, {"step", "=~", "b|c"}},
			"up":       {{"job", "=", "$job"}},
		},
		labels: []string{"le", "step", "job", "kind"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(query{})); diff != "" {
		t.Errorf("query (-want +got):\n%s", diff)
	}
}

// problems says what of a query is not in what the programs measure; shown are labels that are shown of the result.
func (q query) problems(known map[string]metrics.Metric, shown []string) []string {
	var found []string
	labels := slices.Clone(targetLabels)
	for _, name := range q.metrics {
		metric, has := known[metrics.Base(name, known)]
		if !has {
			found = append(found, "there is no metric "+name)
			continue
		}
		if metric.Kind == "histogram" && metrics.Base(name, known) == name {
			found = append(found, name+" is a histogram: it has _bucket, _count and _sum")
		}
		own := slices.Clone(targetLabels)
		for label := range metric.Labels {
			own = append(own, label)
		}
		if strings.HasSuffix(name, "_bucket") {
			own = append(own, "le")
		}
		labels = append(labels, own...)
		for _, matcher := range q.matchers[name] {
			if !slices.Contains(own, matcher[0]) {
				found = append(found, fmt.Sprintf("%s has no label %s", name, matcher[0]))
			}
			values := metric.Labels[matcher[0]]
			for value := range strings.SplitSeq(matcher[2], "|") {
				if values != nil && !variable.MatchString(value) && !slices.Contains(values, value) {
					found = append(found, fmt.Sprintf("%s has no %s %q", name, matcher[0], value))
				}
			}
		}
	}
	for _, label := range slices.Concat(q.labels, shown) {
		if !slices.Contains(labels, label) {
			found = append(found, fmt.Sprintf("none of %v has the label %s", q.metrics, label))
		}
	}
	return found
}

func TestProblemsOfQueries(t *testing.T) {
	known := map[string]metrics.Metric{
		"a_seconds": {Kind: "histogram", Labels: map[string][]string{"step": {"b", "c"}}},
		"c_total":   {Kind: "counter", Labels: map[string][]string{"policy": nil}},
	}
	for expression, want := range map[string][]string{
		`sum by (le, step) (rate(a_seconds_bucket{job="x",step=~"b|c"}[5m]))`: nil,
		`c_total{policy="any"}`: nil,
		`a_seconds`:             {"a_seconds is a histogram: it has _bucket, _count and _sum"},
		`c_total_count`:         {"there is no metric c_total_count"},
		`a_seconds_sum{step="d",stage="x"}`: {
			`a_seconds_sum has no step "d"`, "a_seconds_sum has no label stage"},
		`sum by (le) (c_total)`: {"none of [c_total] has the label le"},
	} {
		if diff := cmp.Diff(want, parseQuery(expression).problems(known, nil)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", expression, diff)
		}
	}
}
