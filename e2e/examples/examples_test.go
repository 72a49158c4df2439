package examples_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stageset/stageset/e2e/examples"
)

// block is a fenced block of a document.
func block(language string, lines ...string) string {
	return "```" + language + "\n" + strings.Join(lines, "\n") + "\n```\n"
}

func TestParse(t *testing.T) {
	text := "# Title\n" + block("yaml", "# a.yaml", "a: b") + "text\n" + block("yaml", "# all/b.yaml", "b: c") +
		block("console", "$ cat a.yaml", "# a.yaml", "a: b", "$ cat all/", `$ true \`, "  # nothing", "nothing")
	document, err := examples.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	want := examples.Document{
		Files: map[string]string{"a.yaml": "# a.yaml\na: b\n", "all/b.yaml": "# all/b.yaml\nb: c\n"},
		Commands: []examples.Command{
			{Line: 12, Text: "cat a.yaml", Prints: "# a.yaml\na: b\n"}, {Line: 15, Text: "cat all/"},
			{Line: 16, Text: "true \\\n  # nothing", Prints: "nothing\n"},
		},
	}
	if diff := cmp.Diff(want, document); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
	directory := t.TempDir()
	if err := document.Write(directory); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(filepath.Join(directory, "all", "b.yaml")); string(content) != "# all/b.yaml\nb: c\n" {
		t.Errorf("%v, written is %q", err, content)
	}
}

// What is no example that is run does not stay in a document.
func TestParseFails(t *testing.T) {
	cat := block("console", "$ cat a.yaml")
	const unnamed = "the first line of yaml is not a comment with the name of a file, such as # policy.yaml"
	for name, test := range map[string]struct{ text, want string }{
		"another language":  {block("go", "package a"), `line 2: a block of "go" is neither yaml nor console, and is not run`},
		"no language":       {block("", "$ ls"), `line 2: a block of "" is neither yaml nor console, and is not run`},
		"indented":          {" ```yaml\n ```", "line 1: the block is indented, so that nobody runs it"},
		"no end":            {"```yaml\n# a.yaml\n", "line 1: the block does not end"},
		"no name":           {block("yaml", "a: b"), "line 2: " + unnamed},
		"a name elsewhere":  {block("yaml", "# ../a.yaml", "a: b"), "line 2: " + unnamed},
		"a name twice":      {block("yaml", "# a.yaml") + block("yaml", "# a.yaml") + cat, "line 5: there are two files a.yaml"},
		"a file for nobody": {block("yaml", "# a.yaml", "a: b"), "no command names a.yaml"},
		"no command":        {block("console", "nothing"), "line 2: console does not begin with a command"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := examples.Parse(test.text)
			if got := fmt.Sprint(err); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestScripts(t *testing.T) {
	text := block("sh", "a", "b") + "text\n" + block("yaml", "a: b") + block("sh needs a cloud", "c") + block("text", "d")
	scripts, err := examples.Scripts(text)
	if err != nil {
		t.Fatal(err)
	}
	want := []examples.Script{{Line: 2, Text: "a\nb\n"}, {Line: 10, Text: "c\n", Needs: "a cloud"}}
	if diff := cmp.Diff(want, scripts); diff != "" {
		t.Errorf("scripts (-want +got):\n%s", diff)
	}
	makes := examples.Script{Text: "make run test # all\nmake lint\n"}
	if diff := cmp.Diff([]string{"run", "test", "lint"}, makes.Targets()); diff != "" {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[:1], examples.Runnable(append(scripts, makes))); diff != "" {
		t.Errorf("scripts that a test runs (-want +got):\n%s", diff)
	}
	for _, info := range []string{"", "sh needs ", "bash", "sh a cloud", "console"} {
		if _, err := examples.Scripts("text\n" + block(info, "a")); err == nil || !strings.HasPrefix(err.Error(), "line 3: ") {
			t.Errorf("a block of %q: %v", info, err)
		}
	}
}

func TestVisible(t *testing.T) {
	if got := examples.Visible("NAME   AGE\n\n  a      b\n"); got != "NAME AGE\na b" {
		t.Errorf("got %q", got)
	}
}
