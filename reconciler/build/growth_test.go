package build

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"
)

// repeated is text written count times, with its number.
func repeated(count int, format string) string {
	var out strings.Builder
	for i := range count {
		fmt.Fprintf(&out, format, i)
	}
	return out.String()
}

// Small kustomizations that kustomize would need gigabytes or hours for. None is begun.
func TestKustomizeBoundsGrowth(t *testing.T) {
	many := repeated(1000, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d}\n")
	const one = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {v: x, w: y}\n"
	large := strings.Repeat("x", 1<<20)
	self := "- source: {kind: ConfigMap, name: c, fieldPath: data.v}\n" +
		"  targets: [{select: {kind: ConfigMap, name: c}, fieldPaths: [data.v], options: {delimiter: '-', index: 9}}]\n"
	cases := map[string]struct {
		kustomization string
		files         map[string]string
		want          string
	}{
		"replacement that doubles": {
			"resources: [c.yaml]\nreplacements:\n" + strings.Repeat(self, 40),
			map[string]string{"c.yaml": one}, "replacements: kustomize may have to copy more than 64 MiB",
		},
		"replacement of a mapping into itself": {
			"resources: [c.yaml]\nreplacements:\n" + repeated(40, "- source: {kind: ConfigMap, fieldPath: data}\n"+
				"  targets: [{select: {kind: ConfigMap}, fieldPaths: [data.x%d], options: {create: true}}]\n"),
			map[string]string{"c.yaml": one}, "replacements: kustomize may have to copy",
		},
		"replacements that feed each other": {
			"resources: [c.yaml]\nreplacements:\n" + strings.Repeat(
				strings.ReplaceAll(self, "fieldPath: data.v", "fieldPath: data.w")+strings.ReplaceAll(self, "[data.v]", "[data.w]"), 20),
			map[string]string{"c.yaml": one}, "replacements: kustomize may have to copy",
		},
		"replacement from a file, into all": {
			"resources: [many.yaml]\nreplacements: [{path: r.yaml}]\n", map[string]string{"many.yaml": many,
				"r.yaml": "sourceValue: " + large + "\ntargets: [{select: {kind: ConfigMap}, fieldPaths: [data.x], options: {create: true}}]\n"},
			"replacements: kustomize may have to copy",
		},
		"replacement of a transformer": {
			"resources: [c.yaml]\ntransformers: [t.yaml]\n", map[string]string{"c.yaml": one,
				"t.yaml": "apiVersion: builtin\nkind: ReplacementTransformer\nmetadata: {name: t}\nreplacements:\n" + strings.Repeat(self, 40)},
			"replacements: kustomize may have to copy",
		},
		"replacement of what a generator makes": {
			"configMapGenerator: [{name: g, files: [v=large]}]\nresources: [many.yaml]\nreplacements:\n" +
				"- source: {kind: ConfigMap, name: g, fieldPath: data.v}\n" +
				"  targets: [{select: {kind: ConfigMap, name: c.*}, fieldPaths: [data.x], options: {create: true}}]\n",
			map[string]string{"many.yaml": many, "large": large}, "replacements: kustomize may have to copy",
		},
		"var": {
			"resources: [c.yaml, pod.yaml]\nvars: [{name: V, objref: {apiVersion: v1, kind: ConfigMap, name: c}, fieldref: {fieldPath: data.v}}]\n",
			map[string]string{"c.yaml": strings.Replace(one, "v: x", "v: "+large, 1),
				"pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{args: ['" + strings.Repeat("$(V)", 1000) + "']}]}\n"},
			"vars: kustomize may have to copy",
		},
		"var in a patch": {
			"resources: [c.yaml, pod.yaml]\nvars: [{name: V, objref: {apiVersion: v1, kind: ConfigMap, name: c}, fieldref: {fieldPath: data.v}}]\n" +
				"patches: [{target: {kind: Pod}, patch: '[{op: add, path: /spec/x, value: \"" + strings.Repeat("$(V)", 1000) + "\"}]'}]\n",
			map[string]string{"c.yaml": strings.Replace(one, "v: x", "v: "+large, 1), "pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {}\n"},
			"vars: kustomize may have to copy",
		},
		"patch of all": {
			"resources: [many.yaml]\npatches: [{path: p.yaml, target: {kind: .*}}]\n",
			map[string]string{"many.yaml": many, "p.yaml": "data: {x: " + large + "}\n"}, "patches: kustomize may have to copy",
		},
		"patch that copies": {
			"resources: [many.yaml]\npatches: [{path: p.yaml, target: {kind: ConfigMap}}]\n", map[string]string{"many.yaml": many,
				"p.yaml": "- {op: add, path: /data, value: {a: b}}\n" + repeated(30, "- {op: copy, from: /data, path: /data/c%d}\n")},
			"patches: kustomize may have to copy",
		},
		"labels": {
			"resources: [many.yaml]\nlabels: [{pairs: {x: " + large + "}}]\n", map[string]string{"many.yaml": many},
			"labels: kustomize may have to copy",
		},
		"prefix": {
			"resources: [many.yaml]\nnamePrefix: " + large + "\n", map[string]string{"many.yaml": many}, "namePrefix: kustomize may have to copy",
		},
		"image": {
			"resources: [pod.yaml]\nimages: [{name: i, newName: " + large + "}]\n", map[string]string{
				"pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [" + repeated(1000, "{name: c%d, image: i},") + "]}\n"},
			"images: kustomize may have to copy",
		},
		"transformer": {
			"resources: [many.yaml]\ntransformers: [t.yaml]\n", map[string]string{"many.yaml": many,
				"t.yaml": "apiVersion: builtin\nkind: LabelTransformer\nmetadata: {name: t}\nlabels: {x: " + large + "}\nfieldSpecs: [{path: data/x, create: true}]\n"},
			"transformers: kustomize may have to copy",
		},
		"in a component": {
			"resources: [many.yaml]\ncomponents: [comp]\n", map[string]string{"many.yaml": many,
				"comp/kustomization.yaml": component + "commonAnnotations: {x: " + large + "}\n"},
			"comp/kustomization.yaml: commonAnnotations: kustomize may have to copy",
		},
		"too many objects": {
			"resources: [many.yaml]\n", map[string]string{"many.yaml": repeated(10_001, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d}\n")},
			"kustomize would work on more than 10000 objects",
		},
		"too many objects, of one base": {
			"resources: [" + repeated(11, "o%d, ") + "]\n", func() map[string]string {
				files := map[string]string{"base/kustomization.yaml": "resources: [many.yaml]\n", "base/many.yaml": many}
				for i := range 11 {
					files[fmt.Sprintf("o%d/kustomization.yaml", i)] = fmt.Sprintf("resources: [../base]\nnamePrefix: p%d-\n", i)
				}
				return files
			}(),
			"kustomize would work on more than 10000 objects",
		},
		"too many targets": {
			"resources: [many.yaml]\npatches:\n" + repeated(10_001, "- {target: {kind: Pod, name: p%d}, patch: '[]'}\n"),
			map[string]string{"many.yaml": many}, "kustomize would take too long",
		},
		"notes about transformers": {
			"resources: [many.yaml]\nbuildMetadata: [transformerAnnotations]\npatches:\n" + repeated(100, "- {target: {kind: Pod, name: p%d}, patch: '[]'}\n"),
			map[string]string{"many.yaml": many}, "kustomize would take too long",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			maps.Copy(tc.files, map[string]string{"kustomization.yaml": tc.kustomization})
			begin := time.Now()
			got := failed(t, tc.files, Options{})
			if !strings.Contains(got, tc.want) {
				t.Errorf("message %q does not say %q", got, tc.want)
			}
			if took := time.Since(begin); took > kustomizeTimeout/2 {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// What people really write is far from the bounds, also when there is much of it; and what kustomize makes is never more
// than what was estimated.
func TestKustomizeGrowsAsEstimated(t *testing.T) {
	shop := os.DirFS("testdata/shop")
	cases := map[string]struct {
		files map[string]string
		limit int64 // MiB
	}{
		"everything for many": {map[string]string{
			"base/kustomization.yaml": "resources: [all.yaml]\nconfigMapGenerator: [{name: params, literals: [host=example.com, tag=v1]}]\n",
			"base/all.yaml": repeated(100, "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web-%[1]d}\n"+
				"spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: 'app:1', args: [$(HOST)]}]}}}\n"),
			"kustomization.yaml": "resources: [base]\nnamePrefix: p-\nnameSuffix: -s\nnamespace: n\ncommonLabels: {x: y}\ncommonAnnotations: {u: v}\n" +
				"labels: [{pairs: {l: m}, includeSelectors: true, fields: [{path: spec/x, create: true}]}]\n" +
				"images: [{name: app, newName: registry.example.com/app, newTag: v2}]\n" +
				"vars: [{name: HOST, objref: {apiVersion: v1, kind: ConfigMap, name: params}, fieldref: {fieldPath: data.host}}]\n" +
				"patches:\n- target: {kind: Deployment}\n  patch: '[{op: add, path: /spec/replicas, value: 3}, {op: copy, from: /spec/template, path: /spec/other}]'\n" +
				repeated(50, "- {patch: '{apiVersion: apps/v1, kind: Deployment, metadata: {name: web-%[1]d}, spec: {paused: true}}'}\n") +
				"replacements:\n" + repeated(50, "- source: {kind: ConfigMap, name: params, fieldPath: data.tag}\n"+
				"  targets: [{select: {kind: Deployment, name: web-%[1]d}, fieldPaths: ['spec.template.spec.containers.[name=c].image'], options: {delimiter: ':', index: 1}}]\n"),
		}, 64},
		"composed values": {map[string]string{
			"kustomization.yaml": "resources: [all.yaml]\nreplacements:\n" +
				"- source: {kind: ConfigMap, name: a, fieldPath: data.name}\n  targets: [{select: {kind: ConfigMap, name: b}, fieldPaths: [data.host], options: {delimiter: '.', index: 0}}]\n" +
				"- source: {kind: ConfigMap, name: b, fieldPath: data.host}\n  targets: [{select: {kind: ConfigMap}, fieldPaths: [data.copy], options: {create: true}}]\n" +
				"- source: {kind: ConfigMap, name: b, fieldPath: data}\n  targets: [{select: {kind: ConfigMap, name: a}, fieldPaths: [data.all], options: {create: true}}]\n",
			"all.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {name: www}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndata: {host: x.example.com}\n",
		}, 1},
		"transformers": {map[string]string{
			"kustomization.yaml": "resources: [a.yaml]\ntransformers: [t.yaml]\nbuildMetadata: [originAnnotations, transformerAnnotations]\n", "a.yaml": configMap("a"),
			"t.yaml": "apiVersion: builtin\nkind: AnnotationsTransformer\nmetadata: {name: t}\nannotations: {x: y}\nfieldSpecs: [{path: metadata/annotations, create: true}]\n---\n" +
				"apiVersion: builtin\nkind: PatchTransformer\nmetadata: {name: t}\ntarget: {kind: ConfigMap}\npatch: '[{op: add, path: /data, value: {a: b}}]'\n---\n" +
				"apiVersion: builtin\nkind: ReplacementTransformer\nmetadata: {name: t}\nreplacements:\n- sourceValue: z\n  targets: [{select: {kind: ConfigMap}, fieldPaths: [data.a]}]\n",
		}, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { growsAsEstimated(t, &builder{artifact: artifact(tc.files)}, ".", tc.limit<<20) })
	}
	t.Run("shop", func(t *testing.T) { growsAsEstimated(t, &builder{artifact: shop}, "overlays/prod", 1<<20) })
}

// growsAsEstimated builds a kustomization, and compares what is estimated with what it renders.
func growsAsEstimated(t *testing.T, b *builder, dir string, limit int64) {
	t.Helper()
	b.parser, b.input = parser{objects: objectBudget()}, inputBudget()
	s := newScan(b)
	if _, err := s.enter(context.Background(), dir, nil); err != nil {
		t.Fatal(err)
	}
	g := newGrowth(s)
	items, err := g.enter(context.Background(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	estimated := int64(0)
	for _, it := range items {
		estimated += it.size
	}
	m, err := Build(context.Background(), b.artifact, Options{Path: dir})
	if err != nil {
		t.Fatal(err)
	}
	rendered := int64(0)
	for _, object := range m.Objects() {
		rendered += sizeOfValue(object.Object)
	}
	grown := maxGrowth - g.left
	t.Logf("rendered %d, estimated %d, of which %d are copied", rendered, estimated, grown)
	if rendered > estimated {
		t.Errorf("%d bytes are rendered, %d were estimated", rendered, estimated)
	}
	if grown > limit {
		t.Errorf("%d bytes are estimated to be copied, want at most %d", grown, limit)
	}
}
