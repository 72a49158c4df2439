package build

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const component = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n"

// componentFiles are two components: one labels and adds, one patches.
var componentFiles = map[string]string{
	"components/label/kustomization.yaml": component + "resources: [more.yaml]\nlabels: [{pairs: {l: x}}]\n",
	"components/label/more.yaml":          configMap("more"),
	"components/patch/kustomization.yaml": component + "patches: [{path: p.yaml, target: {kind: ConfigMap, name: a}}]\n",
	"components/patch/p.yaml":             "- {op: add, path: /data, value: {patched: 'by ${x}'}}\n",
}

// A stage's components render what they would in the kustomization of its directory.
func TestComponents(t *testing.T) {
	cases := map[string]struct {
		files map[string]string
		// without has the components of the stage, with lists them itself.
		without, with string
	}{
		"kustomization": {
			files:   map[string]string{"app/a.yaml": configMap("a"), "app/own/kustomization.yaml": component + "namePrefix: own-\n"},
			without: "resources: [a.yaml]\nnamePrefix: p-\ncomponents: [own]\n",
			with:    "resources: [a.yaml]\nnamePrefix: p-\ncomponents: [own, ../components/label, ../components/patch]\n",
		},
		"plain directory": {
			files: map[string]string{
				"app/a.yaml": configMap("a"), "app/README.md": "no manifest", "app/b c/d.json": `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}}`,
				"app/sub/kustomization.yaml": "resources: [s.yaml]\nnameSuffix: -s\n", "app/sub/s.yaml": configMap("s"),
			},
			with: "resources: [a.yaml, b c/d.json, sub]\ncomponents: [../components/label, ../components/patch]\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			maps.Copy(tc.files, componentFiles)
			withFile := maps.Clone(tc.files)
			withFile["app/kustomization.yaml"] = tc.with
			want := texts(t, built(t, withFile, Options{Path: "app"}))
			if tc.without != "" {
				tc.files["app/kustomization.yaml"] = tc.without
			}
			m := built(t, tc.files, Options{Path: "./app/", Components: []string{"../components/label", "../components/patch/"}})
			if diff := cmp.Diff(want, texts(t, m)); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			if !strings.Contains(want, "patched: by ${x}") || !strings.Contains(want, "l: x") {
				t.Errorf("the components do nothing:\n%s", want)
			}
			if name == "plain directory" {
				if diff := cmp.Diff([]string{"app/README.md"}, m.Ignored()); diff != "" {
					t.Errorf("ignored (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// A component may lie in the directory that it is used for, also in the root of the artifact.
func TestComponentInsideThePath(t *testing.T) {
	files := maps.Clone(componentFiles)
	files["a.yaml"] = configMap("a")
	m := built(t, files, Options{Components: []string{"components/label", "./components/patch"}})
	want := []string{"ConfigMap a a.yaml:1", "ConfigMap more components/label/more.yaml:1"}
	if diff := cmp.Diff(want, origins(m)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

func TestComponentsRefuse(t *testing.T) {
	files := maps.Clone(componentFiles)
	maps.Copy(files, map[string]string{"app/a.yaml": configMap("a"), "base/kustomization.yaml": "resources: [b.yaml]\n", "base/b.yaml": configMap("b")})
	for reference, want := range map[string]string{
		"../nope":                    `the stage: components: "../nope" does not exist in the artifact`,
		"../../x":                    `the stage: components: "../../x" leads out of the artifact`,
		"/components/label":          `the stage: components: "/components/label" is an absolute path`,
		"../base/b.yaml":             `the stage: components: "../base/b.yaml" is not a directory`,
		"../base":                    `base/kustomization.yaml: the stage includes this as a component, but it is not of kind Component`,
		"../app":                     `kustomizations include each other: app → app`,
		"https://u:p@host.invalid/x": `the stage: components: "https://host.invalid/x" is remote; what a build uses must be in the artifact`,
		"":                           `the stage: components: a path is empty`,
	} {
		t.Run(reference, func(t *testing.T) {
			if got := failed(t, files, Options{Path: "app", Components: []string{reference}}); got != want {
				t.Errorf("message %q, want %q", got, want)
			}
		})
	}
}
