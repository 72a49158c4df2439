package docs_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

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
