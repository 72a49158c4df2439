package build

import (
	"context"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/stageset/stageset/reconciler/failure"
)

// FuzzParse: what parses survives the way to kustomize and back, and is of the types that can be copied; what does not has
// its file in the message. Seeds are the inputs of T-83.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"a: &x {k: v}\nb: *x\n", "base: &b {x: 1}\nc:\n  <<: *b\n", "a: &a [*a]\n", "1: a\n", "n: 9007199254740993\n", "tag: 553640e6\n",
		"# only\n", "---\n---\n", "a: 1\na: 2\n", "a: x\u0093y\n", "a: \"x\\Ny\"\n", "a:\n\tb: 1\n", "\uFEFFa: 1\r\n", "\xFF\xFEa\x00",
		"%YAML 1.1\n---\na: !!binary aGk=\n", "? [a]\n: b\n", "a: |\n  x\n  ---\n", "a: 1\n...\nb: 2\n", "a: .nan\n", "a: 0x_1\n", "- !!int \"1\"\n", "9e19",
	} {
		f.Add(seed, false)
	}
	for _, seed := range []string{`{"a": [1, 2.5, "\ud83d\ude00"]}`, `{"a": 1, "a": 2}`, `[`, `1e999`, "{}\n{}", `{"a":` + strings.Repeat("[", 2000)} {
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, text string, isJSON bool) {
		file := map[bool]string{false: "x.yaml", true: "x.json"}[isJSON]
		documents, err := parser{objects: objectBudget()}.parse(file, []byte(text))
		if err != nil {
			if !strings.HasPrefix(err.Error(), file+":") {
				t.Errorf("error %q does not begin with the file", err)
			}
			return
		}
		for _, d := range documents {
			value := runtime.DeepCopyJSONValue(d.value)
			encoded, err := encode(value)
			if err != nil {
				t.Fatal(err)
			}
			var node yaml.Node
			if err := yaml.Unmarshal(encoded, &node); err != nil {
				t.Fatalf("%q was encoded as %q, which is no YAML: %v", text, encoded, err)
			}
			again, err := parser{objects: objectBudget()}.parse("again.yaml", encoded)
			if err != nil || len(again) != 1 {
				t.Fatalf("%q was encoded as %q, which gives %d documents, %v", text, encoded, len(again), err)
			}
			if second, err := encode(again[0].value); err != nil || string(second) != string(encoded) {
				t.Errorf("%q was encoded as %q, and then as %q, %v", text, encoded, second, err)
			}
		}
	})
}

// FuzzBuild: no kustomization and no manifest does anything but render or fail as BuildFailed.
func FuzzBuild(f *testing.F) {
	f.Add("resources: [a.yaml]\nnamePrefix: p-\n", configMap("a"))
	f.Add("resources: [a.yaml]\npatches: [{path: a.yaml}]\n", configMap("a"))
	f.Add("resources: [http://127.0.0.1:1/x]\n", "")
	f.Add("resources: [../../etc]\n", "")
	f.Add("resources: [.]\n", "a: &a [*a]")
	f.Add("resources: [a.yaml]\ncrds: [a.yaml]\n", recursiveTypes)
	f.Add("transformers: [a.yaml]\n", "apiVersion: builtin\nkind: LabelTransformer\nmetadata: {name: a}\n")
	f.Add("configMapGenerator: [{name: a, files: [a.yaml], envs: [a.yaml]}]\n", "A=b")
	f.Add("resources: [a.yaml]\nreplacements: [{source: {kind: ConfigMap}, targets: [{select: {kind: ConfigMap}, fieldPaths: [data.x]}]}]\n", configMap("a"))
	f.Add("resources: [a.yaml]\nvars: [{name: V, objref: {apiVersion: v1, kind: ConfigMap, name: a}}]\n", configMap("a")+"data: {a: $(V)}\n")
	f.Add("resources: [a.yaml]\nreplacements:\n- {path: a.yaml}\n- {path: a.yaml}\n", "sourceValue: x\ntargets: [{select: {kind: .*}, fieldPaths: [a.*]}]\n")
	f.Fuzz(func(t *testing.T, kustomization, file string) {
		_, err := Build(context.Background(), artifact(map[string]string{"kustomization.yaml": kustomization, "a.yaml": file}), Options{})
		var failed *failure.Error
		if err != nil && !errors.As(err, &failed) {
			t.Errorf("error %v is no failure.Error", err)
		}
	})
}

// FuzzSubstitute: what has no reference stays as it is, what is written as a literal comes out as it was, and nothing else is
// ever left half replaced.
func FuzzSubstitute(f *testing.F) {
	for _, text := range []string{"${a}", "$${a}", "${a:=b}", "${a:=${b}}", "${", "$$${a}}", "x${a", "${x^^}"} {
		f.Add(text, "v")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		expand := func(text string) (string, bool) {
			e := expansion{variables: given("a", value), budget: objectBudget()}
			got, err := e.expand(text)
			if err != nil {
				t.Fatal(err)
			}
			return got, len(e.missing)+len(e.problems) == 0
		}
		if got, ok := expand(text); !strings.Contains(text, referenceMark) && (!ok || got != text) {
			t.Errorf("%q became %q", text, got)
		}
		literal := strings.ReplaceAll(text, referenceMark, literalMark)
		if got, ok := expand(literal); !ok || got != text {
			t.Errorf("the literal %q became %q", literal, got)
		}
		if got, ok := expand(literal + " ${a}"); utf8.ValidString(value) && (!ok || got != text+" "+value) {
			t.Errorf("%q and a reference became %q", literal, got)
		}
	})
}
