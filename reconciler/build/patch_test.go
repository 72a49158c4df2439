package build

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/stageset/stageset/api/v1"
)

// web is what the patches of this file work on.
var web = map[string]string{"web.yaml": `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 9007199254740993
  template:
    spec:
      containers:
      - {name: web, image: "example.com/web:1"}
      - {name: side, image: "example.com/side:1@sha256:0123"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: other, annotations: {tier: back}}
data: {date: "2001-12-14", number: "004"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: web}
`}

func TestPatches(t *testing.T) {
	cases := map[string]struct {
		patches []v1.Patch
		// changed are the objects that are not as they were, by kind; deleted ones are empty.
		changed map[string]string
	}{
		"strategic merge by name": {
			patches: []v1.Patch{{Patch: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  template:\n    spec:\n      containers:\n      - name: side\n        env: [{name: A, value: \"1\"}]\n"}},
			changed: map[string]string{"Deployment": `apiVersion: apps/v1
kind: Deployment
metadata:
  labels:
    app: web
  name: web
spec:
  replicas: 9007199254740993
  template:
    spec:
      containers:
      - env:
        - name: A
          value: "1"
        image: example.com/side:1@sha256:0123
        name: side
      - image: example.com/web:1
        name: web
`},
		},
		"strategic merge with a target": {
			patches: []v1.Patch{{Patch: "apiVersion: v1\nkind: Any\nmetadata: {name: any, namespace: any, labels: {x: y}}\n", Target: &v1.PatchTarget{Kind: "Cluster.*"}}},
			changed: map[string]string{"ClusterRole": "apiVersion: v1\nkind: ClusterRole\nmetadata:\n  labels:\n    x: \"y\"\n  name: web\n"},
		},
		"JSON 6902 keeps what it does not touch": {
			patches: []v1.Patch{{Patch: "- {op: add, path: /data/n, value: \"1\"}\n- {op: remove, path: /data/number}\n", Target: &v1.PatchTarget{AnnotationSelector: "tier=back"}}},
			changed: map[string]string{"ConfigMap": "apiVersion: v1\ndata:\n  date: \"2001-12-14\"\n  \"n\": \"1\"\nkind: ConfigMap\nmetadata:\n  annotations:\n    tier: back\n  name: web\n  namespace: other\n"},
		},
		"delete": {
			patches: []v1.Patch{{Patch: "$patch: delete\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, namespace: other}\n"}},
			changed: map[string]string{"ConfigMap": ""},
		},
		"null removes a field": {
			patches: []v1.Patch{{Patch: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, namespace: other}\ndata: null\n"}},
			changed: map[string]string{"ConfigMap": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  annotations:\n    tier: back\n  name: web\n  namespace: other\n"},
		},
		"two documents": {
			patches: []v1.Patch{{Patch: "$patch: delete\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, namespace: other}\n---\n$patch: delete\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: web}\n"}},
			changed: map[string]string{"ConfigMap": "", "ClusterRole": ""},
		},
		"no namespace is default": {
			patches: []v1.Patch{{Patch: "$patch: delete\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: default}\n"}},
			changed: map[string]string{"Deployment": ""},
		},
		"a target of a namespace selects nothing without one": {
			patches: []v1.Patch{{Patch: "$patch: delete\napiVersion: v1\nkind: Any\nmetadata: {name: any}\n", Target: &v1.PatchTarget{Namespace: "default"}}},
			changed: map[string]string{"Deployment": ""},
		},
		"names are anchored": {patches: []v1.Patch{{Patch: "[{op: remove, path: /metadata}]", Target: &v1.PatchTarget{Name: "we"}}}},
		"labels":             {patches: []v1.Patch{{Patch: "[{op: remove, path: /spec}]", Target: &v1.PatchTarget{LabelSelector: "app in (web), x notin (y)"}}}, changed: map[string]string{"Deployment": "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  labels:\n    app: web\n  name: web\n"}},
		"one after the other": {
			patches: []v1.Patch{
				{Patch: "[{op: add, path: /metadata/labels, value: {step: one}}]", Target: &v1.PatchTarget{Kind: "ClusterRole"}},
				{Patch: "[{op: replace, path: /metadata/labels/step, value: two}]", Target: &v1.PatchTarget{LabelSelector: "step=one"}},
			},
			changed: map[string]string{"ClusterRole": "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  labels:\n    step: two\n  name: web\n"},
		},
	}
	plain := byKind(t, built(t, web, Options{}))
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			want := map[string]string{}
			for kind, text := range plain {
				want[kind] = text
			}
			for kind, text := range c.changed {
				if want[kind] = text; text == "" {
					delete(want, kind)
				}
			}
			if diff := cmp.Diff(want, byKind(t, built(t, web, Options{Patches: c.patches}))); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
		})
	}
}

// byKind are the objects as YAML by their kind.
func byKind(t *testing.T, m Manifests) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, object := range m.Objects() {
		found[object.GetKind()] = texts(t, Manifests{objects: []Object{object}})
	}
	return found
}

// A character that YAML folds survives both kinds of patches (T-91).
func TestPatchesKeepNextLine(t *testing.T) {
	files := map[string]string{"a.yaml": configMap("a") + "data: {nel: \"a\\Nb\"}\n"}
	target := &v1.PatchTarget{Kind: "ConfigMap"}
	m := built(t, files, Options{Patches: []v1.Patch{
		{Patch: "[{op: add, path: /data/x, value: y}]", Target: target}, {Patch: "data: {z: y}", Target: target},
	}})
	want := map[string]any{"nel": "a\u0085b", "x": "y", "z": "y"}
	if diff := cmp.Diff(want, m.Objects()[0].Object["data"]); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
}

func TestPatchesRefuse(t *testing.T) {
	anything := &v1.PatchTarget{Kind: ".*"}
	cases := map[string]struct {
		patch v1.Patch
		want  string
	}{
		"invalid YAML":      {v1.Patch{Patch: "a: 1\nb: [\n"}, "patches[0]:2: invalid YAML: did not find expected node content"},
		"duplicate key":     {v1.Patch{Patch: "a: 1\na: 2\n"}, `patches[0]:2: key "a" appears twice, first at line 1`},
		"only a comment":    {v1.Patch{Patch: "# nothing"}, "patches[0]: the patch is empty"},
		"a text":            {v1.Patch{Patch: "hello"}, "patches[0]:1: a patch is a mapping (strategic merge) or a list of operations (JSON 6902)"},
		"no target":         {v1.Patch{Patch: "[{op: remove, path: /spec}]"}, "patches[0]:1: a JSON 6902 patch needs a target"},
		"no operations":     {v1.Patch{Patch: "[1]", Target: anything}, "patches[0]:1: this is no list of JSON 6902 operations"},
		"no name":           {v1.Patch{Patch: "apiVersion: v1\nkind: ConfigMap\n"}, "patches[0]: without a target, a patch names its object: ConfigMap without metadata"},
		"matches nothing":   {v1.Patch{Patch: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: absent}\n"}, "patches[0]: 0 objects of the stage are the ConfigMap absent that the patch names; set a target or mend the name"},
		"other version":     {v1.Patch{Patch: "apiVersion: apps/v1beta1\nkind: Deployment\nmetadata: {name: web}\n"}, "patches[0]: 0 objects of the stage are the Deployment web that the patch names; set a target or mend the name"},
		"two for a target":  {v1.Patch{Patch: "a: 1\n---\nb: 1\n", Target: anything}, "patches[0]: with a target, a patch has one document; this has 2"},
		"bad name pattern":  {v1.Patch{Patch: "a: 1", Target: &v1.PatchTarget{Name: "["}}, "patches[0]: target: error parsing regexp: missing closing ]: `[)$`"},
		"bad labels":        {v1.Patch{Patch: "a: 1", Target: &v1.PatchTarget{LabelSelector: "a in"}}, "patches[0]: target.labelSelector: "},
		"bad annotations":   {v1.Patch{Patch: "a: 1", Target: &v1.PatchTarget{AnnotationSelector: "a in"}}, "patches[0]: target.annotationSelector: "},
		"absent path":       {v1.Patch{Patch: "[{op: remove, path: /nope}]", Target: &v1.PatchTarget{Kind: "Deployment"}}, "patches[0]: Deployment web (web.yaml:1): "},
		"removes metadata":  {v1.Patch{Patch: "[{op: remove, path: /metadata}]", Target: &v1.PatchTarget{Kind: "Deployment"}}, "patches[0]: Deployment web (web.yaml:1): the patch removes metadata"},
		"removes all":       {v1.Patch{Patch: "[{op: replace, path: '', value: 1}]", Target: &v1.PatchTarget{Kind: "Deployment"}}, "patches[0]: Deployment web (web.yaml:1): "},
		"label of a number": {v1.Patch{Patch: "[{op: add, path: /metadata/labels/x, value: 1}]", Target: &v1.PatchTarget{Kind: "Deployment"}}, `patches[0]: Deployment web (web.yaml:1): web.yaml:1: Deployment web: metadata.labels: the value of "x" is a number; quote it`},
		"copies that double": {v1.Patch{Patch: copies(40), Target: &v1.PatchTarget{Kind: "Deployment"}},
			"patches[0]: Deployment web (web.yaml:1): "},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := failed(t, web, Options{Patches: []v1.Patch{c.patch}}); !strings.HasPrefix(got, c.want) {
				t.Errorf("message (-want +got):\n%s", cmp.Diff(c.want, got))
			}
		})
	}
}

// copies is a patch that doubles an object that often.
func copies(times int) string {
	var operations strings.Builder
	for i := range times {
		fmt.Fprintf(&operations, "- {op: copy, from: /spec, path: /spec/x%d}\n", i)
	}
	return operations.String()
}

func TestImages(t *testing.T) {
	files := map[string]string{"a.yaml": `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 9007199254740993
  template:
    spec:
      initContainers: [{name: i, image: example.com/web}]
      containers:
      - {name: a, image: "example.com/web:1@sha256:0123"}
      - {name: b, image: "example.com/website:1"}
      - {name: c, image: "exampleXcom/web:1"}
      volumes: [{name: v, image: {reference: "example.com/web:1"}}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: x}
spec: {containers: [{image: "example.com/web:1"}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: x}
data: {image: "example.com/web:1"}
`}
	// images are those of the Deployment in the order of the manifest.
	cases := map[string]struct {
		image v1.Image
		want  []string
	}{
		"tag":            {v1.Image{NewTag: "2"}, []string{"example.com/web:2", "example.com/web:2", "example.com/web:2"}},
		"name":           {v1.Image{NewName: "mirror.local/w"}, []string{"mirror.local/w", "mirror.local/w:1@sha256:0123", "mirror.local/w:1"}},
		"digest":         {v1.Image{Digest: "sha256:abcd"}, []string{"example.com/web@sha256:abcd", "example.com/web@sha256:abcd", "example.com/web@sha256:abcd"}},
		"digest and tag": {v1.Image{Digest: "sha256:abcd", NewTag: "2"}, []string{"example.com/web@sha256:abcd", "example.com/web@sha256:abcd", "example.com/web@sha256:abcd"}},
	}
	before := byKind(t, built(t, files, Options{}))
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.image.Name = "example.com/web"
			got := byKind(t, built(t, files, Options{Images: []v1.Image{c.image}}))
			want := map[string]string{}
			for kind, text := range before {
				want[kind] = text
			}
			want["Deployment"] = strings.NewReplacer("image: example.com/web\n", "image: "+c.want[0]+"\n",
				"image: example.com/web:1@sha256:0123", "image: "+c.want[1], "reference: example.com/web:1", "reference: "+c.want[2]).Replace(before["Deployment"])
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
		})
	}
}
