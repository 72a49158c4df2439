package files_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stageset/stageset/stagesetctl/files"
)

const header = "apiVersion: stages.metio.wtf/v1alpha1\nkind: StageSetPolicy\nmetadata: {name: p}\n"

// reader reads text as standard input.
func reader(text string) *files.Reader { return &files.Reader{In: strings.NewReader(text)} }

func readPolicies(t *testing.T, text string) ([]files.Policy, error) {
	t.Helper()
	documents, err := reader(text).Read(files.Stdin)
	if err != nil {
		return nil, err
	}
	return files.Policies(t.Context(), documents)
}

// TestProblems: whatever is wrong with a file is shown at its line and column, all of it at once.
func TestProblems(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"no YAML": {text: header + "spec: {\n", want: []string{
			"-:4: is not valid YAML: did not find expected node content"}},
		"no YAML in the second document": {text: header + "---\na: 'b\n", want: []string{
			"-:5: is not valid YAML: found unexpected end of stream"}},
		"a key twice": {text: header + "spec: {}\nspec: {}\n", want: []string{
			`-:5: is not valid YAML: key "spec" already set in map`}},
		"a list": {text: "- a\n", want: []string{"-:1: is not valid YAML: is not an object"}},
		"fields that there are not": {
			text: header + "spec:\n  validatoins: []\n  validations:\n" +
				"  - name: r\n    mesage: x\n    message: x\n    expression: x\n",
			want: []string{
				"-:5:3: spec.validatoins: a StageSetPolicy has no such field",
				"-:8:5: spec.validations[0].mesage: a StageSetPolicy has no such field",
			}},
		"another version": {
			text: "\n\napiVersion: stages.metio.wtf/v1\nkind: StageSetPolicy\nmetadata: {name: p}\n",
			want: []string{`-:3:1: apiVersion is "stages.metio.wtf/v1", not stages.metio.wtf/v1alpha1`}},
		"a version that there is not": {
			text: "apiVersion: stages.metio.wtf/v2\nkind: StageSet\nmetadata: {name: p}\n",
			want: []string{`-:1:1: apiVersion is "stages.metio.wtf/v2", not stages.metio.wtf/v1`}},
		"a kind that is misspelt": {
			text: "apiVersion: stages.metio.wtf/v1alpha1\nkind: StagesetPolicy\nmetadata: {name: p}\n",
			want: []string{`-:2:1: kind is "StagesetPolicy", which stages.metio.wtf does not have`}},
		"a name that is none": {
			text: "apiVersion: stages.metio.wtf/v1alpha1\nkind: StageSetPolicy\nmetadata: {name: My policy, lables: {}}\n" +
				"spec: {validations: [{name: r, expression: x, message: m}]}\n",
			want: []string{
				`-:3:12: metadata.name: Invalid value: "My policy": a lowercase RFC 1123 subdomain must consist of lower case ` +
					`alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character ` +
					`(e.g. 'example.com', regex used for validation is ` +
					`'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
				"-:3:29: metadata.lables: a StageSetPolicy has no such field",
			}},
		"a name twice": {
			text: header + "spec: {}\n---\n" + header + "spec: {}\n",
			want: []string{"-:8:12: policy p is also in -:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readPolicies(t, test.text)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(strings.Join(test.want, "\n"), got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWithin: the same character of an expression is found however the expression is written.
func TestWithin(t *testing.T) {
	for name, test := range map[string]struct {
		yaml string
		// line and column are where in the value; want is the line and the text that begins there.
		line, column int
		want         string
	}{
		"plain":              {"expression: a &&  here", 1, 7, "4 here"},
		"plain, over lines":  {"expression: a &&\n    here", 1, 6, "5 here"},
		"literal":            {"expression: |-\n    a &&\n\n    here", 3, 1, "7 here"},
		"folded":             {"expression: >-\n    a &&\n    here &&\n    b", 1, 6, "6 here &&"},
		"folded, a new line": {"expression: >-\n    a\n\n    here", 2, 1, "7 here"},
		"single quotes":      {"expression: 'a == ''x'' && here'", 1, 13, "4 here'"},
		"double quotes":      {`expression: "\u0061 == \"x\"\n&&\x20here"`, 2, 4, `4 here"`},
		"double quotes, cut": {"expression: \"a && \\\n    here\"", 1, 6, `5 here"`},
		"not ASCII":          {"expression: \"'äöü' == here\"", 1, 10, `4 here"`},
		"flow":               {"{expression: 'a &&  here'}", 1, 7, "4 here'}"},
		"with a tag":         {"expression: !!str 'a here'", 1, 3, "4 here'"},
	} {
		t.Run(name, func(t *testing.T) {
			text := header[:strings.Index(header, "metadata")] + "metadata: {name: p}\n" + test.yaml + "\n"
			if strings.HasPrefix(test.yaml, "{") {
				text = "\n\n\n" + test.yaml + "\n"
			}
			documents, err := reader(text).Read(files.Stdin)
			if err != nil {
				t.Fatal(err)
			}
			got := documents[0].Within("expression", test.line, test.column, "wrong")
			found := ""
			if lines := strings.Split(text, "\n"); got.Line <= len(lines) {
				found = string([]rune(lines[got.Line-1])[got.Column-1:])
			}
			if diff := cmp.Diff(test.want, fmt.Sprint(got.Line, " ", found)); diff != "" {
				t.Errorf("position (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAt: a field is found by the names and by the positions of items; what is not there is its parent.
func TestAt(t *testing.T) {
	const text = `spec:
  matchConditions:
  - {name: a.b/c, expression: x}
  auditAnnotations:
  - {key: k, valueExpression: x}
  variables: &v
  - name: one
    expression: 1
  tests: *v
`
	documents, err := reader(text).Read(files.Stdin)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"spec.matchConditions[a.b/c].expression":      "-:3:19: wrong",
		"spec.matchConditions[0].expression":          "-:3:19: wrong",
		"spec.auditAnnotations[k].valueExpression":    "-:5:14: wrong",
		"spec.variables[one].expression":              "-:8:5: wrong",
		"spec.tests[one].expression":                  "-:8:5: wrong",
		"spec.variables[two].expression":              "-:6:3: wrong",
		"spec.validations[r].expression":              "-:1:1: wrong",
		".spec.variables[0].nothing.at['all'][above]": "-:7:5: wrong",
		"": "-:1:1: wrong",
	} {
		if got := documents[0].At(path, "wrong").Error(); got != want {
			t.Errorf("%s is at %s, want %s", path, got, want)
		}
	}
}

// tree makes files, by path, in a directory that becomes the working directory. "-> path" makes a link.
func tree(t *testing.T, content map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range content {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, link := strings.CutPrefix(text, "-> "); link {
			err = os.Symlink(target, name)
		} else {
			err = os.WriteFile(name, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestRead: directories are read with what is below them, sorted; other files in them are left alone. Links to files are
// followed, and so are links that are named.
func TestRead(t *testing.T) {
	tree(t, map[string]string{
		"b.yaml": "kind: B", "a.json": `{"kind": "A"}`, "sub/c.yml": "# nothing\n---\nkind: C\n--- # more\nkind: D\n---\n",
		"README.md": "not: [yaml", "empty/x.txt": "", "bad/bad.yaml": "a: [", "bad/other": "-> ..",
		// As a ConfigMap is mounted.
		"mounted/..1/p.yaml": "kind: P", "mounted/..data": "-> ..1", "mounted/p.yaml": "-> ..data/p.yaml",
		"link": "-> sub", "gone/gone.yaml": "-> nowhere", "gone/directory.yaml": "-> ../sub",
		"utf16/x.yaml": "\xff\xfea\x00", "binary/x.yaml": "a: b\nc: \xff", "control/x.yaml": "a: \x00",
	})
	documents, err := reader("kind: In").Read("a.json", "sub", files.Stdin, "b.yaml", "mounted", "link")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range documents {
		got = append(got, fmt.Sprintf("%s:%d %s", d.Path, d.Line, d.Kind()))
	}
	want := []string{
		"a.json:1 A", "sub/c.yml:3 C", "sub/c.yml:5 D", "-:1 In", "b.yaml:1 B", "mounted/p.yaml:1 P",
		"link/c.yml:3 C", "link/c.yml:5 D",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("documents (-want +got):\n%s", diff)
	}

	for name, test := range map[string]struct {
		paths []string
		want  string
	}{
		"everything, and nothing": {[]string{".", "nowhere", "empty"}, "gone/gone.yaml: no such file or directory\n" +
			"nowhere: no such file or directory\n" +
			"empty: has no *.yaml, *.yml or *.json file\n" +
			"bad/bad.yaml:1: is not valid YAML: did not find expected node content\n" +
			"binary/x.yaml:2: is not UTF-8\n" +
			"control/x.yaml:1: is not valid YAML: control characters are not allowed\n" +
			"utf16/x.yaml:1: is not UTF-8"},
		"standard input twice": {[]string{"-", "-"}, "-: standard input can be read once, and is named twice"},
		"what never ends":      {[]string{"/dev/zero"}, "/dev/zero: there are more than 32 MiB to read"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := reader("").Read(test.paths...)
			if diff := cmp.Diff(test.want, fmt.Sprint(err)); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

// TestReadBounded: what is bounded is everything that is read, and not each file.
func TestReadBounded(t *testing.T) {
	large := "# " + strings.Repeat("x", files.MaxSize/2)
	tree(t, map[string]string{"a.yaml": large, "b.yaml": large, "c.yaml": large})
	if _, err := reader("").Read("a.yaml"); err != nil {
		t.Error(err)
	}
	_, err := reader("").Read(".")
	if want := "there are more than 32 MiB to read"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestReadMany: each document costs what is in it, and not what is before it.
func TestReadMany(t *testing.T) {
	const many = 10_000
	documents, err := reader(strings.Repeat("---\nkind: A\n", many)).Read(files.Stdin)
	if err != nil {
		t.Fatal(err)
	}
	if len(documents) != many || documents[many-1].Line != 2*many {
		t.Errorf("there are %d documents, the last in line %d", len(documents), documents[len(documents)-1].Line)
	}
}

// TestReadLists: what kubectl prints is a list, and stands for its items, which are where they are.
func TestReadLists(t *testing.T) {
	const text = `---
apiVersion: v1
kind: List
items:
- kind: A
  spec: {b: c}
- apiVersion: example.com/v1
  kind: BList
  items:
  - {kind: B}
- &d
  kind: D
  items: [1, 2] # no list of objects
- *d
`
	documents, err := reader(text).Read(files.Stdin)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range documents {
		got = append(got, fmt.Sprintf("%s %d, spec.b: %s", d.Kind(), d.Line, d.At("spec.b", "wrong")))
	}
	want := []string{
		"A 5, spec.b: -:6:10: wrong", "B 10, spec.b: -:10:5: wrong", "D 11, spec.b: -:11:3: wrong",
		"D 14, spec.b: -:14:3: wrong",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("documents (-want +got):\n%s", diff)
	}
	merged, err := reader("all: &all\n  items: [{kind: A}]\nkind: List\n<<: *all\n").Read(files.Stdin)
	if err != nil || len(merged) != 1 || merged[0].Line != 1 {
		t.Errorf("a list that is merged from elsewhere is %v, %v", merged, err)
	}
	_, err = reader("kind: List\nitems:\n- kind: A\n- b\n").Read(files.Stdin)
	if want := "-:4: is not valid YAML: is not an object"; fmt.Sprint(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestSchema: what the API server would not store is found before it is asked.
func TestSchema(t *testing.T) {
	_, err := readPolicies(t, header+`spec:
  target: Stage
  validations:
  - name: r
    expression: 1
  - name: r
    expression: 'true'
    message: m
  failurePolicy: [Fail]
`)
	want := `-:5:3: spec.target: Unsupported value: "Stage": supported values: "StageSet", "Source", "Manifest"
-:7:5: spec.validations[0].message: Required value
-:8:5: spec.validations[0].expression: Invalid value: "integer": must be of type string: "integer"
-:9:5: spec.validations[1]: Duplicate value: {"name":"r"}
-:12:3: spec.failurePolicy: Invalid value: "array": must be of type string: "array"
-:12:3: spec.failurePolicy: Unsupported value: ["Fail"]: supported values: "Fail", "Ignore"`
	if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// TestStatus: what was read from a cluster has the status that another version, or another program, has written.
func TestStatus(t *testing.T) {
	text := header + "spec: {validations: [{name: r, expression: 'true', message: m}]}\n"
	_, err := readPolicies(t, text+"status: {phase: Old, installations: 1}\nstatuses: 1\n")
	if want := "-:6:1: statuses: a StageSetPolicy has no such field"; fmt.Sprint(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
	read, err := readPolicies(t, text+"status: {phase: Old, installations: 1}\n")
	if err != nil || len(read) != 1 {
		t.Errorf("read %d policies: %v", len(read), err)
	}
}
