package build

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/stageset/stageset/api/v1"
)

// given are variables from a ConfigMap.
func given(pairs ...string) Variables {
	variables := Variables{}
	for i := 0; i < len(pairs); i += 2 {
		variables[pairs[i]] = Variable{Value: pairs[i+1]}
	}
	return variables
}

// The grammar: what is a reference, and what is left as it is.
func TestSubstituteTexts(t *testing.T) {
	cases := map[string]struct {
		text string
		want string
	}{
		"reference":                  {"${a}", "1"},
		"within a text":              {"x-${a}-${b}.y", "x-1-two.y"},
		"twice":                      {"${a}${a}", "11"},
		"default not needed":         {"${a:=9}", "1"},
		"default":                    {"${no:=some text: with = and :=}", "some text: with = and :="},
		"empty default":              {"[${no:=}]", "[]"},
		"empty value":                {"[${empty}]", "[]"},
		"default of an empty value":  {"${empty:=full}", "full"},
		"literal":                    {"$${a} ${a}", "${a} 1"},
		"literal of anything":        {"$${x^^} $${", "${x^^} ${"},
		"dollar before a literal":    {"$$${a}", "$${a}"},
		"literal around a reference": {"$${a:=${a}}", "${a:=1}"},
		"no brace":                   {"$a $$ $(a) $ {a} \\$a", "$a $$ $(a) $ {a} \\$a"},
		"braces":                     {"}{${a}}{", "}{1}{"},
		"values are not read again":  {"${tricky}", "${a} $${b}"},
		"names":                      {"${_x1}${X}", "underscoreupper"},
		"lines":                      {"${lines}", "one\n  two: \"${a}\"\n"},
	}
	variables := given("a", "1", "b", "two", "empty", "", "tricky", "${a} $${b}", "_x1", "underscore", "X", "upper",
		"lines", "one\n  two: \"${a}\"\n")
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := expansion{variables: variables, budget: objectBudget(), quoting: true}
			got, err := e.expand(tc.text)
			if err != nil || len(e.missing) > 0 || len(e.problems) > 0 {
				t.Fatalf("error %v, missing %q, problems %q", err, e.missing, e.problems)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
		})
	}
}

// T-90, T-91: a text stays a text whatever it becomes, and what has no reference stays as it is to the byte; in a plain
// directory as in one that kustomize builds.
func TestSubstitutePlaces(t *testing.T) {
	manifests := `
apiVersion: v1
kind: ConfigMap
metadata:
  name: app-${ENV}
  namespace: ${ENV}
  labels: {tenant: '${TENANT}', "${ENV}.example.com/x": y}
  annotations:
    tenant: "${TENANT}"
    plain: ${TENANT}
    truth: '${YES}'
data:
  nginx: '\.(?:a|b)$ \\ $1 $$ \$\{x\}'
  folded: >-
    a long line that
    is folded, with a backslash \
  block: |
    if [ "$x" ]; then echo "\\"; fi \
  number: "004"
  date: 2001-12-14
---
apiVersion: example.com/v1
kind: Thing
metadata: {name: thing}
spec: {count: 3, ratio: 0.5, on: true, none: null, list: [1, '${TENANT}', {deep: ['${TENANT}']}], '${TENANT}': 1}
`
	want := `apiVersion: v1
data:
  block: |
    if [ "$x" ]; then echo "\\"; fi \
  date: "2001-12-14"
  folded: a long line that is folded, with a backslash \
  nginx: \.(?:a|b)$ \\ $1 $$ \$\{x\}
  number: "004"
kind: ConfigMap
metadata:
  annotations:
    plain: "004"
    tenant: "004"
    truth: "true"
  labels:
    prod.example.com/x: "y"
    tenant: "004"
  name: app-prod
  namespace: prod
---
apiVersion: example.com/v1
kind: Thing
metadata:
  name: thing
spec:
  "004": 1
  count: 3
  list:
  - 1
  - "004"
  - deep:
    - "004"
  none: null
  "on": true
  ratio: 0.5
`
	for name, files := range map[string]map[string]string{
		"plain":     {"all.yaml": manifests},
		"kustomize": {"all.yaml": manifests, "kustomization.yaml": "resources: [all.yaml]\n"},
	} {
		t.Run(name, func(t *testing.T) {
			m := built(t, files, Options{Variables: given("TENANT", "004", "ENV", "prod", "YES", "true")})
			if diff := cmp.Diff(want, texts(t, m)); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			without := built(t, files, Options{})
			if got := without.Objects()[0].GetName(); got != "app-${ENV}" {
				t.Errorf("without postBuild the name is %q", got)
			}
		})
	}
}

// What patches, images and common metadata bring in is substituted too, and a Secret before its stringData is folded.
func TestSubstituteComesLast(t *testing.T) {
	m := built(t, map[string]string{"a.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {k: '${a}'}\n"}, Options{
		Patches:        []v1.Patch{{Patch: "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {p: '<${a}>'}\n"}},
		CommonMetadata: &v1.CommonMetadata{Labels: map[string]string{"l": "${a}"}},
		Variables:      given("a", "value"),
	})
	want := "apiVersion: v1\ndata:\n  k: dmFsdWU=\n  p: PHZhbHVlPg==\nkind: Secret\nmetadata:\n  labels:\n    l: value\n  name: s\n"
	if diff := cmp.Diff(want, texts(t, m)); diff != "" {
		t.Errorf("object (-want +got):\n%s", diff)
	}
}

// T-93: an object opts out by annotation, a kustomization for all that it renders.
func TestSubstituteOptOut(t *testing.T) {
	const script = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {x: '${HOME} ${x^^}'}\n"
	manifest := func(name, annotations string) string {
		return strings.Replace(strings.ReplaceAll(script, "%s", name), "metadata: {", "metadata: {annotations: {"+annotations+"}, ", 1)
	}
	const optOut = "kustomize.toolkit.fluxcd.io/substitute: disabled"
	files := map[string]string{
		"object/a.yaml": manifest("a", optOut),
		"dir/kustomization.yaml": "metadata: {annotations: {" + optOut + "}}\nresources: [a.yaml, ../base]\nnamePrefix: p-\n" +
			"configMapGenerator: [{name: g, literals: ['x=${HOME}'], options: {disableNameSuffixHash: true}}]\n",
		"dir/a.yaml":              manifest("b", "other: x"),
		"base/kustomization.yaml": "resources: [c.yaml]\n",
		"base/c.yaml":             manifest("c", "other: x"),
		"one/kustomization.yaml":  "resources: [../dir, d.yaml]\n",
		"one/d.yaml":              "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: d}\ndata: {x: '${tenant}'}\n",
	}
	for path, want := range map[string][]string{
		"object": {"a: ${HOME} ${x^^}"},
		"dir":    {"p-b: ${HOME} ${x^^}", "p-c: ${HOME} ${x^^}", "p-g: ${HOME}"},
		"one":    {"p-b: ${HOME} ${x^^}", "p-c: ${HOME} ${x^^}", "p-g: ${HOME}", "d: blue"},
	} {
		t.Run(path, func(t *testing.T) {
			var got []string
			for _, object := range built(t, files, Options{Path: path, Variables: given("tenant", "blue")}).Objects() {
				data, _ := object.Object["data"].(map[string]any)
				got = append(got, object.GetName()+": "+data["x"].(string))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("values (-want +got):\n%s", diff)
			}
		})
	}
	got := failed(t, map[string]string{
		"kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\ncomponents: [c]\n",
		"c/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n" +
			"metadata: {annotations: {" + optOut + "}}\n",
	}, Options{})
	if want := "c/kustomization.yaml:3: a Component cannot opt out of substitution"; !strings.HasPrefix(got, want) {
		t.Errorf("message %q, want %q", got, want)
	}
}

// T-93: all problems of all objects at once, each with object and field; nothing of a Secret's manifest is quoted, and no
// value of a Secret ever.
func TestSubstituteRefuses(t *testing.T) {
	const canary = "canary-7Vq1"
	variables := Variables{
		"a": {Value: "1"}, "b": {Value: "1"}, "token": {Value: canary, Secret: true}, "bad": {Value: "\xff"},
		"slashes": {Value: "1/1/1"},
	}
	cases := map[string]struct {
		manifests string
		want      []string
	}{
		"missing": {
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, labels: {tenant: '${tenant}'}}\n" +
				"data: {run.sh: '${HOME} ${PATH} ${HOME} ${x^^}', list: '${a}'}\n---\n" +
				"apiVersion: v1\nkind: Pod\nmetadata: {name: two}\nspec: {containers: [{args: ['${ARG}']}]}\n",
			[]string{
				`postBuild: ConfigMap web (a.yaml:1): data["run.sh"]: no value for HOME, PATH; `,
				`ConfigMap web (a.yaml:1): data["run.sh"]: "${x^^}" is neither ${name} nor ${name:=default}`,
				`ConfigMap web (a.yaml:1): metadata.labels.tenant: no value for tenant; `,
				`Pod two (a.yaml:6): spec.containers[0].args[0]: no value for ARG; `,
				`write $${ for a literal ${, or annotate an object that is to stay as it is with ` +
					`kustomize.toolkit.fluxcd.io/substitute: disabled`,
			},
		},
		"forms of shells": {
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n" +
				"data: {a: '${a:-x}', b: '${a:=${b}}', c: '${a:1:2}', d: '${a/b/c}', e: '${}', f: '${1}', g: '${ a }', h: '${a'}\n",
			[]string{`data.a: "${a:-x}"`, `data.b: "${a:=${b}"`, `data.c: "${a:1:2}"`, `data.d: "${a/b/c}"`, `data.e: "${}"`,
				`data.f: "${1}"`, `data.g: "${ a }"`, `data.h: "${a"`},
		},
		"keys that become the same": {
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {'${a}': x, '${b}': y}\n",
			[]string{`ConfigMap c (a.yaml:1): data["${b}"]: two keys become the same`},
		},
		"in a Secret": {
			"apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {k: '${" + canary + "^^} ${missing}', p: 'x${" + canary + "'}\n",
			[]string{`Secret s (a.yaml:1): stringData.k: no value for missing; `,
				`stringData.k: something that begins with ${ is neither`, `stringData.p: something that begins with ${ is neither`},
		},
		"value of a Secret in a name": {
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 'x-${token}', namespace: '${token}'}\ndata: {'${token}': x, ok: '${token}'}\n",
			[]string{`ConfigMap ${token}/x-${token} (a.yaml:1): data["${token}"]: token is the value of a Secret`,
				`metadata.name: token is the value of a Secret`, `metadata.namespace: token is the value of a Secret`},
		},
		"value that is no text": {
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {k: '${bad}'}\n",
			[]string{`data.k: the value of bad is not UTF-8 text`},
		},
		"what becomes no object": {
			"apiVersion: '${slashes}'\nkind: ConfigMap\nmetadata: {name: c}\n",
			[]string{`a.yaml:1: apiVersion "1/1/1" is not group/version`},
		},
		"value of a Secret that breaks a Secret": {
			"apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {k: '${token}'}\n",
			[]string{`Secret s: data: the value of "k" is not base64`},
		},
		"no end of problems": {
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {" + strings.Repeat("'${x}': '${y}', ", 1) + "z: '" +
				strings.Repeat("${n}", 1000) + "'}\n",
			[]string{`data.z: no value for n; `},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, files := range []map[string]string{
				{"a.yaml": tc.manifests},
				{"a.yaml": tc.manifests, "kustomization.yaml": "resources: [a.yaml]\n"},
			} {
				got := failed(t, files, Options{Variables: variables})
				if strings.Contains(got, canary) {
					t.Errorf("message %q", got)
				}
				for _, want := range tc.want {
					if !strings.Contains(got, want) {
						t.Errorf("message %q does not say %q", got, want)
					}
				}
			}
		})
	}
}

func TestSubstituteListsSomeAndCountsTheRest(t *testing.T) {
	data := make([]string, 50)
	for i := range data {
		data[i] = "k" + strings.Repeat("x", i) + ": '${v}'"
	}
	got := failed(t, map[string]string{
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {" + strings.Join(data, ", ") + "}\n",
	}, Options{Variables: Variables{}})
	if !strings.Contains(got, "; and 30 more; ") || strings.Count(got, "no value for v") != maxProblems {
		t.Errorf("message %q", got)
	}
}

// A small manifest cannot become a large one, nor take long.
func TestSubstituteIsBounded(t *testing.T) {
	text := func(content string) map[string]string {
		return map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {x: '" + content + "'}\n"}
	}
	got := failed(t, text(strings.Repeat("${a}", 200)), Options{Variables: given("a", strings.Repeat("x", 1<<20))})
	if want := "postBuild: ConfigMap c (a.yaml:1): the stage has more than 64 MiB of objects; split it"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	for _, hostile := range []string{"${", "${a:=", "${a:=${", "$${", "${a:=${b}"} {
		// Each takes a moment, unless the time grows with the square of the size.
		_, _ = Build(t.Context(), artifact(text(strings.Repeat(hostile, MaxDocument/2/len(hostile)))), Options{Variables: given("a", "1")})
	}
}
