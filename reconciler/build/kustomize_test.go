package build

import (
	"context"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares text with a file in testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// One kustomization with everything that is supported: bases inside the artifact above and below, components, patches of
// all forms, generators from files and texts, replacements, configurations, kustomize's own transformers.
func TestKustomizeRenders(t *testing.T) {
	m, err := Build(context.Background(), os.DirFS("testdata/shop"), Options{Path: "overlays/prod"})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "shop.golden.yaml", texts(t, m))
	golden(t, "shop.origins.golden.txt", strings.Join(origins(m), "\n")+"\n")
}

func TestKustomizeKeepsValues(t *testing.T) {
	m := built(t, map[string]string{
		"kustomization.yaml": `
resources: [all.yaml]
patches:
- patch: |-
    [{"op": "add", "path": "/data/added", "value": "x"}]
  target: {kind: ConfigMap}
- patch: |-
    apiVersion: example.com/v1
    kind: Big
    metadata: {name: big}
    spec: {more: 9007199254740995}
`,
		"all.yaml": `
apiVersion: example.com/v1
kind: Big
metadata: {name: big}
spec: {id: 9007199254740993, list: [9007199254740993], min: -9223372036854775808, ratio: 0.1}
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: cm}
  data:
    date: "2001-12-14"
    plain-date: 2001-12-14
    number: "004"
    word: "yes"
    regex: '\.(?:a|b)$'
    lines: |
      one \
      two
`,
	}, Options{})
	want := `apiVersion: example.com/v1
kind: Big
metadata:
  name: big
spec:
  id: 9007199254740993
  list:
  - 9007199254740993
  min: -9223372036854775808
  more: 9007199254740995
  ratio: 0.1
---
apiVersion: v1
data:
  added: x
  date: "2001-12-14"
  lines: |
    one \
    two
  number: "004"
  plain-date: "2001-12-14"
  regex: \.(?:a|b)$
  word: "yes"
kind: ConfigMap
metadata:
  name: cm
`
	if diff := cmp.Diff(want, texts(t, m)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

// T-21, T-81, T-82, and what else a kustomization may not do: each is refused by name.
func TestKustomizeRefuses(t *testing.T) {
	one := func(text string) map[string]string {
		return map[string]string{"k/kustomization.yaml": "# first line\n" + text, "k/cm.yaml": configMap("a"), "base/kustomization.yaml": "resources: [cm.yaml]\n",
			"base/cm.yaml": configMap("base"), "comp/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n"}
	}
	with := func(text string, more map[string]string) map[string]string {
		files := one(text)
		for name, content := range more {
			files[name] = content
		}
		return files
	}
	const file = "k/kustomization.yaml:"
	const notOwn = "is not one of kustomize's own; plugins, functions and helm are never run"
	cases := map[string]struct {
		files map[string]string
		want  string
	}{
		"absent resource":       {one("resources: [nope.yaml]"), file + `2: resources: "nope.yaml" does not exist in the artifact`},
		"line of a reference":   {one("resources:\n- cm.yaml\n- nope.yaml\n"), file + `4: resources: "nope.yaml" does not exist in the artifact`},
		"out of the artifact":   {one("resources: [../../../../etc]"), file + `2: resources: "../../../../etc" leads out of the artifact`},
		"absolute path":         {one("resources: [/etc/passwd]"), file + `2: resources: "/etc/passwd" is an absolute path`},
		"empty path":            {one("resources: ['']"), file + "2: resources: a path is empty"},
		"directory without one": {with("resources: [dir]", map[string]string{"k/dir/a.yaml": configMap("x")}), `directory "k/dir" has no kustomization file`},
		"two files":             {with("", map[string]string{"k/Kustomization": "resources: []"}), `directory "k" has more than one kustomization file: k/kustomization.yaml, k/Kustomization`},
		"empty":                 {one(""), "k/kustomization.yaml: a kustomization is one document; this has 0"},
		"two documents":         {one("resources: [cm.yaml]\n---\nresources: []\n"), "k/kustomization.yaml: a kustomization is one document; this has 2"},
		"a list":                {one("- a"), file + "2: a kustomization is a mapping; this is a list"},
		"unknown field":         {one("resources: [cm.yaml]\nresource: []"), file + `3: invalid Kustomization: json: unknown field "resource"`},
		"wrong kind":            {one("kind: Deployment\nresources: [cm.yaml]"), file + "2: kind should be Kustomization or Component"},
		"duplicate key":         {one("resources: [cm.yaml]\nresources: []\n"), file + `3: key "resources" appears twice, first at line 2`},
		"invalid YAML":          {one("resources: [\n"), file + "2: invalid YAML"},
		"itself":                {one("resources: [.]"), "kustomizations include each other: k → k"},
		"itself, by name":       {one("resources: [../k]"), "kustomizations include each other: k → k"},
		"what contains it":      {with("resources: [..]", map[string]string{"kustomization.yaml": "resources: [k]"}), "kustomizations include each other: k → ."},
		"a cycle":               {with("resources: [../b]", map[string]string{"b/kustomization.yaml": "resources: [../k]"}), "kustomizations include each other: k → b → k"},
		"component as resource": {one("resources: [../comp]"), "comp/kustomization.yaml: k/kustomization.yaml includes this Component as a resource; list it under components"},
		"resource as component": {one("components: [../base]"), "base/kustomization.yaml: k/kustomization.yaml includes this as a component, but it is not of kind Component"},
		"file as component":     {one("components: [cm.yaml]"), file + `2: components: "cm.yaml" is not a directory`},
		"component alone":       {one("kind: Component\napiVersion: kustomize.config.k8s.io/v1alpha1\nresources: [cm.yaml]"), "k/kustomization.yaml: a Component renders nothing by itself; include it from a kustomization"},
		"openapi":               {one("openapi: {path: schema.json}\nresources: [cm.yaml]"), file + "2: openapi is not supported"},
		"openapi, other case":   {one("OpenAPI: {path: schema.json}\nresources: [cm.yaml]"), file + "2: OpenAPI is not supported"},
		"helmCharts":            {one("helmCharts: [{name: x}]"), file + "2: helmCharts is not supported"},
		"helmGlobals":           {one("helmGlobals: {chartHome: x}"), file + "2: helmGlobals is not supported"},
		"helm, old":             {one("helmChartInflationGenerator: [{chartName: x}]"), file + "2: helmChartInflationGenerator is not supported"},
		"bad manifest":          {with("resources: [x.yaml]", map[string]string{"k/x.yaml": "\n\nkind: A\n"}), "k/x.yaml:3: this is no manifest: apiVersion is missing"},
		"bad YAML of manifest":  {with("resources: [x.yaml]", map[string]string{"k/x.yaml": "a: 1\na: 2\n"}), `k/x.yaml:2: key "a" appears twice, first at line 1`},
		"bad YAML of patch":     {with("resources: [cm.yaml]\npatches: [{path: p.yaml}]", map[string]string{"k/p.yaml": "a: 1\n\tb: 2\n"}), "k/p.yaml:2: invalid YAML"},
		"bad YAML in patch":     {one("resources: [cm.yaml]\npatches:\n- patch: |\n    a: 1\n    a: 2\n"), `k/kustomization.yaml:4: patches:2: key "a" appears twice, first at line 1`},
		"empty patch":           {one("resources: [cm.yaml]\npatches: [{target: {kind: A}}]"), "patches: the text is empty"},
		"anchors in patch": {one("resources: [cm.yaml]\npatches:\n- patch: |\n    a: &a [*a]\n"),
			`k/kustomization.yaml:4: patches:1: anchor "a" contains itself`},
		"anchors in manifest": {with("resources: [x.yaml]", map[string]string{"k/x.yaml": "a: &a [*a]\n"}), `k/x.yaml:1: anchor "a" contains itself`},
		"anchors in configuration": {with("resources: [cm.yaml]\nconfigurations: [x.yaml]", map[string]string{"k/x.yaml": "a: &a [*a]\n"}),
			`k/x.yaml:1: anchor "a" contains itself`},
		"types that refer to themselves": {with("resources: [cm.yaml]\ncrds: [x.json]", map[string]string{"k/x.json": recursiveTypes}), file + `3: crds: "x.json": type "io.x.A" refers to itself, or to too many others`},
		"types that are none":            {with("resources: [cm.yaml]\ncrds: [x.yaml]", map[string]string{"k/x.yaml": "a: 1"}), file + `3: crds: "x.yaml": these are no OpenAPI definitions`},
		"empty types":                    {with("resources: [cm.yaml]\ncrds: [x.yaml]", map[string]string{"k/x.yaml": ""}), file + `3: crds: "x.yaml" is empty`},
		"function":                       {one("transformers:\n- |-\n  apiVersion: example.com/v1\n  kind: Run\n  metadata: {name: x, annotations: {config.kubernetes.io/function: 'container: {image: x}'}}\n"), `transformers: "Run" ` + notOwn},
		"exec plugin":                    {with("generators: [x.yaml]", map[string]string{"k/x.yaml": "apiVersion: someteam.example.com/v1\nkind: Exec\nmetadata: {name: x}\n"}), `generators: "Exec" ` + notOwn},
		"helm generator":                 {one("generators:\n- |-\n  apiVersion: builtin\n  kind: HelmChartInflationGenerator\n  metadata: {name: x}\n  repo: https://127.0.0.1\n"), `generators: "HelmChartInflationGenerator" ` + notOwn},
		"validator":                      {one("validators:\n- |-\n  apiVersion: x/v1\n  kind: Check\n  metadata: {name: x}\n"), `validators: "Check" ` + notOwn},
		"directory of transformers":      {one("transformers: [../base]"), `transformers: "../base" is a directory; name its files`},
		"transformer, other case":        {one("transformers:\n- |-\n  apiVersion: builtin\n  kind: PatchTransformer\n  metadata: {name: x}\n  Path: https://127.0.0.1/x\n"), `transformers: write "Path" as "path"`},
		"generator of absent file":       {one("configMapGenerator: [{name: x, files: [k=nope.txt]}]"), file + `2: configMapGenerator.files: "nope.txt" does not exist in the artifact`},
		"generator of directory":         {one("configMapGenerator: [{name: x, files: [../base]}]"), file + `2: configMapGenerator.files: "../base" is a directory; name its files`},
		"object twice": {with("resources: [cm.yaml, x.yaml]", map[string]string{"k/x.yaml": configMap("a")}),
			"k/kustomization.yaml: kustomize: accumulating resources: accumulation err='merging resources from './x.yaml': may not add resource with an already registered id: ConfigMap.v1.[noGrp]/a.[noNs]'"},
		"patch of nothing": {one("resources: [cm.yaml]\npatches:\n- patch: |-\n    apiVersion: v1\n    kind: Secret\n    metadata: {name: zz}\n"),
			`k/kustomization.yaml: kustomize: no resource matches strategic merge patch "Secret.v1.[noGrp]/zz.[noNs]": no matches for Id Secret.v1.[noGrp]/zz.[noNs]; failed to find unique target for patch Secret.v1.[noGrp]/zz.[noNs]`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := failed(t, c.files, Options{Path: "k"})
			if !strings.Contains(got, c.want) {
				t.Errorf("message (-want +got):\n%s", cmp.Diff(c.want, got))
			}
		})
	}
}

const recursiveTypes = `{"io.x.A": {"Schema": {"properties": {"kind": {}, "apiVersion": {}, "metadata": {}, "next": {"$ref": "io.x.A"}}}}}`

// T-82: nothing is fetched, whichever field names it, in whichever form. The listener sees no connection; the message says
// what is wrong.
func TestKustomizeNeverConnects(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var connections atomic.Int64
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			connection.Close()
		}
	}()
	address := listener.Addr().String()
	urls := map[string]string{
		"http":          "http://" + address + "/x",
		"upper case":    "HTTP://" + address + "/x.yaml",
		"git over http": "http://" + address + "/org/repo.git?ref", "git prefix": "git::http://" + address + "/org/repo.git",
		"ssh": "ssh://git@" + address + "/org/repo", "scp": "git@127.0.0.1:org/repo", "file": "file:///etc/repo.git//x", "github": "github.com/org/repo/x", "no slashes": "http:" + address,
	}
	fields := map[string]string{
		"resources": "resources: [%q]", "bases": "bases: [%q]", "components": "components: [%q]", "configurations": "resources: [cm.yaml]\nconfigurations: [%q]",
		"crds": "resources: [cm.yaml]\ncrds: [%q]", "generators": "generators: [%q]", "transformers": "resources: [cm.yaml]\ntransformers: [%q]",
		"validators": "resources: [cm.yaml]\nvalidators: [%q]", "patches": "resources: [cm.yaml]\npatches: [{path: %q}]",
		"patchesStrategicMerge": "resources: [cm.yaml]\npatchesStrategicMerge: [%q]",
		"patchesJson6902":       "resources: [cm.yaml]\npatchesJson6902: [{path: %q, target: {version: v1, kind: ConfigMap, name: a}}]",
		"replacements":          "resources: [cm.yaml]\nreplacements: [{path: %q}]",
		"files":                 "configMapGenerator: [{name: x, files: [%q]}]", "envs": "secretGenerator: [{name: x, envs: [%q]}]",
		"env":             "configMapGenerator: [{name: x, env: %q}]",
		"below":           "resources: [../below]",
		"in builtin":      "resources: [cm.yaml]\ntransformers:\n- |-\n  apiVersion: builtin\n  kind: PatchTransformer\n  metadata: {name: x}\n  path: %q\n",
		"in replacements": "resources: [cm.yaml]\ntransformers:\n- |-\n  apiVersion: builtin\n  kind: ReplacementTransformer\n  metadata: {name: x}\n  replacements: [{path: %q}]\n",
		"in generator":    "generators:\n- |-\n  apiVersion: builtin\n  kind: SecretGenerator\n  metadata: {name: x}\n  files: [%q]\n",
		"in value":        "resources: [cm.yaml]\ntransformers:\n- |-\n  apiVersion: builtin\n  kind: ValueAddTransformer\n  metadata: {name: x}\n  targetFilePath: %q\n",
	}
	for form, url := range urls {
		for field, text := range fields {
			t.Run(field+", "+form, func(t *testing.T) {
				below := "resources: []"
				if strings.Contains(text, "%q") {
					text = fmt.Sprintf(text, url)
				} else {
					below = fmt.Sprintf("resources: [%q]", url)
				}
				got := failed(t, map[string]string{"k/kustomization.yaml": text, "k/cm.yaml": configMap("a"), "below/kustomization.yaml": below}, Options{Path: "k"})
				if !strings.Contains(got, "is remote; what a build uses must be in the artifact") || !strings.Contains(got, "kustomization.yaml:") {
					t.Errorf("message %q", got)
				}
			})
		}
	}
	if got := connections.Load(); got != 0 {
		t.Errorf("%d connections", got)
	}
}

// A path in the artifact is a path, also if it looks like something to fetch.
func TestKustomizeTakesLocalPathsAsSuch(t *testing.T) {
	for _, dir := range []string{"github.com/org/repo", "git@host/org/repo", "x@2/a/b", "host.git/a"} {
		m := built(t, map[string]string{"kustomization.yaml": fmt.Sprintf("resources: [%q]", dir),
			dir + "/kustomization.yaml": "resources: [x@2.yaml]", dir + "/x@2.yaml": configMap("a")}, Options{})
		if diff := cmp.Diff([]string{"ConfigMap a " + dir + "/x@2.yaml:1"}, origins(m)); diff != "" {
			t.Errorf("objects (-want +got):\n%s", diff)
		}
	}
}

// T-21: chains end, however long or bushy.
func TestKustomizeBoundsChains(t *testing.T) {
	chain := map[string]string{"d0/kustomization.yaml": "resources: [cm.yaml]", "d0/cm.yaml": configMap("a")}
	bushy := map[string]string{"d0/kustomization.yaml": "resources: [cm.yaml]", "d0/cm.yaml": configMap("a")}
	for i := 1; i <= 1000; i++ {
		chain[fmt.Sprintf("d%d/kustomization.yaml", i)] = fmt.Sprintf("resources: [../d%d]", i-1)
	}
	for i := 1; i <= 40; i++ {
		bushy[fmt.Sprintf("d%d/kustomization.yaml", i)] = fmt.Sprintf("resources: [../l%d, ../r%d]", i, i)
		for _, side := range []string{"l", "r"} {
			bushy[fmt.Sprintf("%s%d/kustomization.yaml", side, i)] = fmt.Sprintf("namePrefix: %s-\nresources: [../d%d]", side, i-1)
		}
	}
	for name, c := range map[string]struct {
		files      map[string]string
		path, want string
	}{
		"deep":  {chain, "d1000", "more than 64 kustomizations include one another: d1000 → d999 → d998 → d997 → … → d940 → d939 → d938 → d937"},
		"bushy": {bushy, "d30", "more than 5000 kustomizations are included"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := failed(t, c.files, Options{Path: c.path}); !strings.Contains(got, c.want) {
				t.Errorf("message %q does not say %q", got, c.want)
			}
		})
	}
	if m := built(t, bushy, Options{Path: "d3"}); len(m.Objects()) != 8 {
		t.Errorf("%d objects of a base that is reached eight times", len(m.Objects()))
	}
}

// I8: whatever goes wrong in kustomize, its message is not passed on with values of Secrets.
func TestKustomizeTellsNoSecrets(t *testing.T) {
	const canary = "canary-7Vq1"
	secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {k: " + canary + "}\n"
	cases := map[string]map[string]string{
		"literal without key":        {"kustomization.yaml": "secretGenerator: [{name: s, literals: ['" + canary + "']}]"},
		"generator without a name":   {"kustomization.yaml": "secretGenerator: [{literals: ['k=" + canary + "']}]"},
		"patch for nothing":          {"kustomization.yaml": "resources: [s.yaml]\npatches:\n- patch: |-\n    apiVersion: v1\n    kind: Secret\n    metadata: {name: other}\n    stringData: {k: " + canary + "}\n", "s.yaml": secret},
		"patch of two forms":         {"kustomization.yaml": "resources: [s.yaml]\npatches:\n- patch: |-\n    " + canary + "\n", "s.yaml": secret},
		"JSON patch without target":  {"kustomization.yaml": "resources: [s.yaml]\npatches:\n- patch: |-\n    [{\"op\": \"add\", \"path\": \"/stringData/k\", \"value\": \"" + canary + "\"}]\n", "s.yaml": secret},
		"JSON patch to nowhere":      {"kustomization.yaml": "resources: [s.yaml]\npatches:\n- target: {kind: Secret}\n  patch: |-\n    [{\"op\": \"add\", \"path\": \"/no/where\", \"value\": \"" + canary + "\"}]\n", "s.yaml": secret},
		"replacement out of bounds":  {"kustomization.yaml": "resources: [s.yaml]\nreplacements:\n- source: {kind: Secret, fieldPath: stringData.k, options: {delimiter: '-', index: 9}}\n  targets: [{select: {kind: Secret}, fieldPaths: [metadata.name]}]\n", "s.yaml": secret},
		"builtin without its fields": {"kustomization.yaml": "generators:\n- |-\n  apiVersion: builtin\n  kind: SecretGenerator\n  metadata: {name: s}\n  literals: [" + canary + "]\n"},
		"literal with a backtick":    {"kustomization.yaml": "secretGenerator: [{literals: ['k=a`b" + canary + "']}]"},
		"ambiguous reference": {"kustomization.yaml": "namePrefix: p-\nresources: [x, y, pod.yaml]\n", "pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {volumes: [{name: v, secret: {secretName: s}}]}\n",
			"x/kustomization.yaml": "namePrefix: x-\nsecretGenerator: [{name: s, literals: ['k=" + canary + "'], options: {disableNameSuffixHash: true}}]",
			"y/kustomization.yaml": "namePrefix: y-\nsecretGenerator: [{name: s, literals: ['k=" + canary + "'], options: {disableNameSuffixHash: true}}]"},
		"secret twice": {"kustomization.yaml": "resources: [s.yaml, t.yaml]\n", "s.yaml": secret, "t.yaml": secret},
	}
	for name, files := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Build(context.Background(), artifact(files), Options{})
			if err == nil {
				t.Fatal("it rendered")
			}
			for _, form := range []string{canary, base64.StdEncoding.EncodeToString([]byte(canary))} {
				if strings.Contains(err.Error(), form) {
					t.Errorf("message %q", err)
				}
			}
		})
	}
}

// A panic of kustomize's is a failure, not the end of the process.
func TestKustomizePanics(t *testing.T) {
	// kustomize looks at the name of a target that is not there.
	got := failed(t, map[string]string{
		"kustomization.yaml": "resources: [a.yaml]\ntransformers:\n- |-\n  apiVersion: builtin\n  kind: PatchJson6902Transformer\n  metadata: {name: x}\n  jsonOp: '[]'\n",
		"a.yaml":             configMap("a"),
	}, Options{})
	if !strings.Contains(got, "the build broke off, which is a defect of the reconciler") {
		t.Errorf("message %q", got)
	}
}

// Builds run in parallel, also the first ones; run with -race.
func TestKustomizeInParallel(t *testing.T) {
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			name := fmt.Sprintf("d%d", i)
			m, err := Build(context.Background(), artifact(map[string]string{
				"kustomization.yaml": "namespace: " + name + "\nresources: [a.yaml]\npatches: [{path: p.yaml}]\n",
				"a.yaml":             "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {template: {spec: {containers: [{name: c, image: i}]}}}\n",
				"p.yaml":             "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {template: {spec: {containers: [{name: c, env: [{name: A, value: b}]}]}}}\n",
			}), Options{})
			if err != nil || len(m.Objects()) != 1 || m.Objects()[0].GetNamespace() != name {
				t.Errorf("%v, %v", origins(m), err)
			}
		})
	}
	group.Wait()
}

func TestKustomizeEndsWithItsContext(t *testing.T) {
	s := newScan(&builder{artifact: artifact(nil), parser: parser{objects: objectBudget()}, input: inputBudget()})
	s.kustomizations["."] = &kustomization{file: "kustomization.yaml"}
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Nanosecond, errTooSlow)
	defer cancel()
	<-ctx.Done()
	if _, err := s.run(ctx, "."); !errors.Is(err, errTooSlow) {
		t.Errorf("error %v", err)
	}
}
