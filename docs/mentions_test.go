package docs_test

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stageset/stageset/e2e/metrics"
	"github.com/stageset/stageset/stagesetctl/app"
)

var (
	mentionedTarget  = regexp.MustCompile("`make ([a-z-]+)")
	mentionedCommand = regexp.MustCompile("`stagesetctl ((?:[a-z]+ ?)+)")
)

// What a text of the documents calls a target of the Makefile, or a command of stagesetctl, is one.
func TestMentions(t *testing.T) {
	makefile := read(t, "../Makefile")
	targets, commands := 0, 0
	for _, document := range documents(t) {
		text := codeBlock.ReplaceAllString(read(t, document), "")
		for _, match := range mentionedTarget.FindAllStringSubmatch(text, -1) {
			targets++
			if !strings.Contains(makefile, "\n"+match[1]+":") {
				t.Errorf("%s: there is no target %s", document, match[1])
			}
		}
		for _, match := range mentionedCommand.FindAllStringSubmatch(text, -1) {
			commands++
			var output bytes.Buffer
			arguments := append(strings.Fields(match[1]), "--help")
			code := app.Main(t.Context(), arguments, app.Streams{Out: &output, Err: &output})
			if usage := "stagesetctl " + strings.TrimSpace(match[1]); code != app.ExitOK || !strings.Contains(output.String(), usage) {
				t.Errorf("%s: %s is no command:\n%s", document, usage, &output)
			}
		}
	}
	if targets == 0 || commands == 0 {
		t.Errorf("%d targets and %d commands are mentioned", targets, commands)
	}
}

var (
	mentionedMetric = regexp.MustCompile("`((?:certwatcher|controller_runtime|leader_election|rest_client|stageset)_[a-z_]+)" +
		"(?:\\{([^`}]*)\\})?`")
	mentionedLabel = regexp.MustCompile(`^(\w+)(?:="(\w+)")?$`)
)

// What a text of the documents calls a metric, with its labels and their values, is one.
func TestMentionedMetrics(t *testing.T) {
	known, err := metrics.Documented(read(t, "metrics.md"), "stageset-admission", "stageset-reconciler", metrics.Libraries)
	if err != nil {
		t.Fatal(err)
	}
	mentioned := 0
	for _, document := range documents(t) {
		for _, match := range mentionedMetric.FindAllStringSubmatch(read(t, document), -1) {
			mentioned++
			metric, exists := known[match[1]]
			if !exists {
				t.Errorf("%s: there is no metric %s", document, match[1])
			}
			for label := range strings.FieldsFuncSeq(match[2], func(r rune) bool { return r == ',' || r == ' ' }) {
				parts := mentionedLabel.FindStringSubmatch(label)
				if parts == nil {
					t.Errorf("%s: %q of %s is no label", document, label, match[1])
					continue
				}
				values, exists := metric.Labels[parts[1]]
				if !exists || parts[2] != "" && values != nil && !slices.Contains(values, parts[2]) {
					t.Errorf("%s: %s has no %s", document, match[1], label)
				}
			}
		}
	}
	if mentioned == 0 {
		t.Error("no metric is mentioned")
	}
}
