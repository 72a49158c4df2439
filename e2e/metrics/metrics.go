// Package metrics reads docs/metrics.md, for tests to compare it with what programs serve and with what is asked of Prometheus.
// It never knows a metric by itself.
package metrics

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Metric is a row of docs/metrics.md.
type Metric struct {
	// Kind is counter, gauge or histogram.
	Kind string
	// Most is the largest bound of a histogram; 0 where it is not said.
	Most float64
	// Labels are the values of each label; none where it may have any.
	Labels map[string][]string
}

// Libraries is the title of the section about what both programs have from their libraries.
const Libraries = "Both, from their libraries"

var (
	row    = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\w+)(?:, \\S+ to (\\S+) \\w+)? \\| (.*?) \\| ")
	label  = regexp.MustCompile("^`(\\w+)`: (.*)$")
	closed = regexp.MustCompile("^(?:`[^`]+`(?:, )?)+$")
	code   = regexp.MustCompile("`([^`]+)`")
	kind   = regexp.MustCompile(`(?m)^# TYPE (\w+) (\w+)$`)
	series = regexp.MustCompile(`(?m)^(\w+)(?:\{(.*)\})? \S+$`)
	pair   = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)
)

// Documented are the metrics in the sections of a document with these titles, by name.
func Documented(document string, sections ...string) (map[string]Metric, error) {
	found := map[string]Metric{}
	for _, title := range sections {
		_, section, has := strings.Cut(document, "\n## "+title+"\n")
		if !has {
			return nil, fmt.Errorf("metrics.md has no section %q", title)
		}
		section, _, _ = strings.Cut(section, "\n## ")
		for _, match := range row.FindAllStringSubmatch(section, -1) {
			metric := Metric{Kind: match[2], Labels: map[string][]string{}}
			if match[3] != "" {
				if _, err := fmt.Sscan(match[3], &metric.Most); err != nil {
					return nil, fmt.Errorf("the largest bound of %s: %w", match[1], err)
				}
			}
			for of := range strings.SplitSeq(match[4], "; ") {
				if parts := label.FindStringSubmatch(of); parts != nil {
					metric.Labels[parts[1]] = nil
					if closed.MatchString(parts[2]) {
						metric.Labels[parts[1]] = codes(parts[2])
					}
				}
			}
			found[match[1]] = metric
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("metrics.md has no metrics in %q", sections)
	}
	return found, nil
}

func codes(text string) []string {
	var values []string
	for _, match := range code.FindAllStringSubmatch(text, -1) {
		values = append(values, match[1])
	}
	return values
}

// Base is the metric that a series is of: histograms have three.
func Base(name string, documented map[string]Metric) string {
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		if base, has := strings.CutSuffix(name, suffix); has && documented[base].Kind == "histogram" {
			return base
		}
	}
	return name
}

// Compare says where what a program serves is not as documented. Metrics of libraries, whose names do not begin with stageset,
// need not be documented. Missing are those of documented that are not served.
func Compare(documented map[string]Metric, exposition string) (problems, missing []string) {
	left := maps.Clone(documented)
	for _, match := range kind.FindAllStringSubmatch(exposition, -1) {
		name := match[1]
		delete(left, name)
		switch want, has := documented[name]; {
		case !has && strings.HasPrefix(name, "stageset_"):
			problems = append(problems, name+" is served and not documented")
		case has && want.Kind != match[2]:
			problems = append(problems, fmt.Sprintf("%s is a %s, and documented as a %s", name, match[2], want.Kind))
		}
	}
	for _, match := range series.FindAllStringSubmatch(exposition, -1) {
		name := Base(match[1], documented)
		want, has := documented[name]
		if !has {
			continue
		}
		labels := map[string]bool{}
		for _, found := range pair.FindAllStringSubmatch(match[2], -1) {
			if found[1] == "le" && want.Kind == "histogram" {
				continue
			}
			labels[found[1]] = true
			if values := want.Labels[found[1]]; values != nil && !slices.Contains(values, found[2]) {
				problems = append(problems, fmt.Sprintf("%s has the %s %q, which is not documented", name, found[1], found[2]))
			}
		}
		if got := slices.Sorted(maps.Keys(labels)); !slices.Equal(got, slices.Sorted(maps.Keys(want.Labels))) {
			problems = append(problems, fmt.Sprintf("%s has the labels %v", name, got))
		}
	}
	slices.Sort(problems)
	return slices.Compact(problems), slices.Sorted(maps.Keys(left))
}
