package build

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

// artifact is a file system of the given files.
func artifact(files map[string]string) fs.FS {
	system := fstest.MapFS{}
	for name, text := range files {
		system[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return system
}

// configMap is a manifest.
func configMap(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\n"
}

// origins are the objects and where they come from.
func origins(m Manifests) []string {
	var found []string
	for _, object := range m.Objects() {
		found = append(found, object.String()+" "+object.Origin)
	}
	return found
}

// texts are the objects as YAML.
func texts(t testing.TB, m Manifests) string {
	t.Helper()
	var all []string
	for _, object := range m.Objects() {
		raw, err := yaml.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(raw))
	}
	return strings.Join(all, "---\n")
}

// built is what a build gives.
func built(t testing.TB, files map[string]string, opts Options) Manifests {
	t.Helper()
	m, err := Build(context.Background(), artifact(files), opts)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// failed is the message of a build that must fail as BuildFailed and Stalled.
func failed(t testing.TB, files map[string]string, opts Options) string {
	t.Helper()
	m, err := Build(context.Background(), artifact(files), opts)
	var failed *failure.Error
	if !errors.As(err, &failed) {
		t.Fatalf("error %v is no failure.Error; built %v", err, origins(m))
	}
	if failed.Reason != v1.ReasonBuildFailed || failed.Kind != failure.Stalled {
		t.Errorf("failure is %s %s, want Stalled BuildFailed", failed.Kind, failed.Reason)
	}
	return failed.Error()
}

func TestBuildPlain(t *testing.T) {
	cases := map[string]struct {
		files   map[string]string
		path    string
		want    []string
		ignored []string
	}{
		"every file, in order": {
			files: map[string]string{"app/b.yaml": configMap("b"), "app/a.yml": configMap("a1") + "---\n" + configMap("a2"),
				"app/c.json": `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}`, "app/sub/deep/d.yaml": configMap("d"), "other/x.yaml": "{{ broken"},
			path: "./app",
			want: []string{"ConfigMap a1 app/a.yml:1", "ConfigMap a2 app/a.yml:5", "ConfigMap b app/b.yaml:1", "ConfigMap c app/c.json:1", "ConfigMap d app/sub/deep/d.yaml:1"},
		},
		"odd names": { // T-79
			files: map[string]string{"a b.yaml": configMap("a"), "ü.yaml": configMap("u"), "x@2.yaml": configMap("x"), ".hidden.yaml": configMap("h")},
			want:  []string{"ConfigMap h .hidden.yaml:1", "ConfigMap a a b.yaml:1", "ConfigMap x x@2.yaml:1", "ConfigMap u ü.yaml:1"},
		},
		"only JSON": { // T-88
			files: map[string]string{"cm.json": `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}`}, path: "/",
			want: []string{"ConfigMap c cm.json:1"},
		},
		"other files are named": {
			files: map[string]string{"README.md": "# x", "app/notes.txt": "x", "app/CM.YML": configMap("a"), "app/Makefile": "all:"},
			want:  []string{"ConfigMap a app/CM.YML:1"}, ignored: []string{"README.md", "app/Makefile", "app/notes.txt"},
		},
		"no manifests": {files: map[string]string{"app/README.md": "x"}, path: "app", ignored: []string{"app/README.md"}},
		"lists at any depth": {
			files: map[string]string{"l.yaml": `
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
- apiVersion: v1
  kind: List
  items:
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}
  - {apiVersion: v1, kind: SecretList, items: [{metadata: {name: s}}]}
- {apiVersion: v1, kind: List, items: []}
- {apiVersion: v1, kind: List}
`},
			want: []string{"ConfigMap a l.yaml:2, items[0]", "ConfigMap b l.yaml:2, items[1], items[0]", "Secret s l.yaml:2, items[1], items[1], items[0]"},
		},
		"a kind that only ends in List": {
			files: map[string]string{"a.yaml": "apiVersion: x.io/v1\nkind: AllowList\nmetadata: {name: a}\nspec: {items: []}\n"},
			want:  []string{"AllowList a a.yaml:1"},
		},
		"comments and empty documents": { // T-83
			files: map[string]string{"a.yaml": "# only a comment\n", "b.yaml": "---\n---\n# x\n---\n" + configMap("b") + "---\n"},
			want:  []string{"ConfigMap b b.yaml:5"},
		},
		"a kustomization below": {
			files: map[string]string{"a.yaml": configMap("a"), "k/kustomization.yaml": "namePrefix: p-\nresources: [b.yaml]\n", "k/b.yaml": configMap("b"), "k/unused.yaml": "{{"},
			want:  []string{"ConfigMap a a.yaml:1", "ConfigMap p-b k/kustomization.yaml"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := built(t, c.files, Options{Path: c.path})
			if diff := cmp.Diff(c.want, origins(m)); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.ignored, m.Ignored()); diff != "" {
				t.Errorf("ignored (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBuildRefuses(t *testing.T) {
	manifest := func(text string) map[string]string { return map[string]string{"app/x.yaml": "# first line\n" + text} }
	cases := map[string]struct {
		files map[string]string
		path  string
		want  string
	}{
		"missing path":        {files: manifest(configMap("a")), path: "./apps", want: `path "./apps" does not exist in the artifact`},
		"path of a file":      {files: manifest(configMap("a")), path: "app/x.yaml", want: `path "app/x.yaml" is a file, not a directory`},
		"path that leads out": {files: manifest(configMap("a")), path: "../etc", want: `path "../etc" leads out of the artifact`},
		"invalid YAML":        {files: manifest("a: [\n"), want: "app/x.yaml:2: invalid YAML: did not find expected node content"},
		"no kind":             {files: manifest("apiVersion: v1\nmetadata: {name: a}\n"), want: "app/x.yaml:2: this is no manifest: kind is missing"},
		"no apiVersion":       {files: manifest("kind: ConfigMap\nmetadata: {name: a}\n"), want: "app/x.yaml:2: this is no manifest: apiVersion is missing"},
		"numeric apiVersion":  {files: manifest("apiVersion: 1\nkind: A\nmetadata: {name: a}\n"), want: "app/x.yaml:2: apiVersion is a number, not a string"},
		"odd apiVersion":      {files: manifest("apiVersion: a/b/c\nkind: A\nmetadata: {name: a}\n"), want: `app/x.yaml:2: apiVersion "a/b/c" is not group/version`},
		"values file":         {files: manifest("replicas: 3\n"), want: "app/x.yaml:2: this is no manifest: apiVersion is missing"},
		"a list":              {files: manifest("- a\n- b\n"), want: "app/x.yaml:2: a manifest is a mapping; this is a list"},
		"a text":              {files: manifest("hello\n"), want: "app/x.yaml:2: a manifest is a mapping; this is a string"},
		"generateName":        {files: manifest("apiVersion: v1\nkind: Pod\nmetadata: {generateName: a-}\n"), want: "app/x.yaml:2: Pod uses generateName, which would make another object in each pass; give it a name"},
		"no name":             {files: manifest("apiVersion: v1\nkind: Pod\nmetadata: {labels: {a: b}}\n"), want: "app/x.yaml:2: Pod without a name"},
		"no metadata":         {files: manifest("apiVersion: v1\nkind: Pod\n"), want: "app/x.yaml:2: Pod without metadata"},
		"numeric name":        {files: manifest("apiVersion: v1\nkind: Pod\nmetadata: {name: 1}\n"), want: "app/x.yaml:2: Pod: metadata.name is a number; quote it"},
		"numeric namespace":   {files: manifest("apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: 1}\n"), want: "app/x.yaml:2: Pod: metadata.namespace is a number; quote it"},
		"label that is a number": { // T-90
			files: manifest("apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {tenant: 004}}\n"), want: `app/x.yaml:2: Pod a: metadata.labels: the value of "tenant" is a number; quote it`},
		"annotation that is a boolean": {
			files: manifest("apiVersion: v1\nkind: Pod\nmetadata: {name: a, annotations: {on: true}}\n"), want: `app/x.yaml:2: Pod a: metadata.annotations: the value of "on" is a boolean; quote it`},
		"labels that are a list": {
			files: manifest("apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: [b]}\n"), want: `app/x.yaml:2: Pod a: metadata.labels is a list, not a mapping`},
		"item of a list":       {files: manifest("apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: a}}\n- {kind: Pod}\n"), want: "app/x.yaml:2, items[1]: this is no manifest: apiVersion is missing"},
		"Secret, data no text": {files: manifest("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {k: 1234567}\n"), want: `app/x.yaml:2: Secret a: data: the value of "k" is a number; quote it`},
		"Secret, data no base64": { // T-98
			files: manifest("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {k: canary!}\n"), want: `app/x.yaml:2: Secret a: data: the value of "k" is not base64`},
		"Secret, stringData no text": {files: manifest("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {k: 1234567}\n"), want: `app/x.yaml:2: Secret a: stringData: the value of "k" is a number; quote it`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.path == "" {
				c.path = "app"
			}
			if diff := cmp.Diff(c.want, failed(t, c.files, Options{Path: c.path})); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBuildBoundsInput(t *testing.T) {
	b := &builder{
		artifact: artifact(map[string]string{"a.yaml": configMap("a"), "b.yaml": configMap("b")}),
		parser:   parser{objects: objectBudget()}, input: &budget{left: int64(len(configMap("a"))), limit: MaxInput, of: "manifests"},
	}
	_, err := b.build(context.Background(), Options{})
	if diff := cmp.Diff("b.yaml: the stage has more than 64 MiB of manifests; split it", err.Error()); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}

func TestBuildFoldsSecrets(t *testing.T) {
	m := built(t, map[string]string{"s.yaml": `
apiVersion: v1
kind: Secret
metadata: {name: s}
data: {a: b2xk, b: a2VwdA==}
stringData: {a: new, c: "1"}
---
apiVersion: example.com/v1
kind: Secret
metadata: {name: other}
stringData: {a: left}
`}, Options{})
	want := `apiVersion: v1
data:
  a: bmV3
  b: a2VwdA==
  c: MQ==
kind: Secret
metadata:
  name: s
---
apiVersion: example.com/v1
kind: Secret
metadata:
  name: other
stringData:
  a: left
`
	if diff := cmp.Diff(want, texts(t, m)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

func TestBuildAddsCommonMetadata(t *testing.T) {
	common := &v1.CommonMetadata{Labels: map[string]string{"team": "a", "app": "web"}, Annotations: map[string]string{"x/y": "z"}}
	m := built(t, map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {app: old, keep: me}}\n"}, Options{CommonMetadata: common})
	want := "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  annotations:\n    x/y: z\n  labels:\n    app: web\n    keep: me\n    team: a\n  name: a\n"
	if diff := cmp.Diff(want, texts(t, m)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

func TestBuildEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for name, files := range map[string]map[string]string{
		"plain":     {"a.yaml": configMap("a")},
		"kustomize": {"kustomization.yaml": "resources: [a.yaml]", "a.yaml": configMap("a")},
	} {
		if _, err := Build(ctx, artifact(files), Options{}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
