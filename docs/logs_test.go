package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// firstKey is which argument of a call to a logger is the first key.
var firstKey = map[string]int{"WithValues": 0, "Info": 1, "Error": 2}

// Each key that the programs log with has a row in logs.md, and each row there is of a key: a query that somebody keeps goes by
// them.
func TestLogKeys(t *testing.T) {
	found := map[string]bool{}
	for _, folder := range []string{"../admission", "../policies", "../process", "../reconciler"} {
		for _, file := range goFiles(t, folder) {
			for _, key := range logKeys(t, file) {
				found[key] = true
			}
		}
	}
	var documented []string
	for _, match := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| \\S.* \\|$").FindAllStringSubmatch(read(t, "logs.md"), -1) {
		documented = append(documented, match[1])
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(found)), documented); diff != "" {
		t.Errorf("keys (-code +docs/logs.md):\n%s", diff)
	}
}

// logKeys are the keys that a file logs with. Calls of that many arguments with these names are of loggers: the others, such as
// err.Error(), have none.
func logKeys(t *testing.T, path string) []string {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	ast.Inspect(file, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		first, logs := firstKey[method.Sel.Name]
		if !logs {
			return true
		}
		for i := first; i < len(call.Args); i += 2 {
			literal, ok := call.Args[i].(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				t.Errorf("%s: this key is not written out", files.Position(call.Args[i].Pos()))
				continue
			}
			key, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, key)
		}
		return true
	})
	return keys
}

// Each event has a line in reasons.md that says what it is about, and each line there is of an event.
func TestEvents(t *testing.T) {
	want := slices.Sorted(maps.Values(constants(t, "../api/v1/events.go")))
	var got []string
	for _, match := range regexp.MustCompile("(?m)^- `([A-Z]\\w+)`: ").FindAllStringSubmatch(read(t, "reasons.md"), -1) {
		got = append(got, match[1])
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-code +docs/reasons.md):\n%s", diff)
	}
}
