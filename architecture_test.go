package stageset_test

import (
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// arrows says which top folders a folder may import; tests may also use e2e. A folder that is not here may not exist.
var arrows = map[string][]string{
	".":           {},
	"api":         {"api"},
	"policies":    {"policies", "api"},
	"process":     {"process"},
	"admission":   {"admission", "policies", "api", "process"},
	"reconciler":  {"reconciler", "policies", "api", "process"},
	"stagesetctl": {"stagesetctl", "policies", "reconciler", "api"},
	"e2e":         {"e2e", "api"},
	"charts":      {"api"},
	"docs":        {"api", "policies", "process", "admission", "reconciler", "stagesetctl"},
}

func TestArrows(t *testing.T) {
	for _, file := range sources(t) {
		allowed, known := arrows[file.top()]
		if !known {
			t.Errorf("%s: what may a package in %s import? Say so in this test and in ARCHITECTURE.md", file.path, file.top())
			continue
		}
		for _, imported := range file.imports(t) {
			dir, ours := inModule(imported)
			if !ours || slices.Contains(allowed, firstFolder(dir)) || file.isTest() && within(dir, "e2e") {
				continue
			}
			t.Errorf("%s imports %s: %s may only import %v", file.path, dir, file.top(), allowed)
		}
	}
}

// importers says which packages alone may import something, in code that is not a test. The first part is what keeps our own
// identity away from what a tenant names: between the loop and package tenant nobody can make a client.
var importers = []struct {
	imported string   // this package, and those below it if it is not of the standard library
	in       string   // by code in this folder
	by       []string // only by these packages
}{
	{"k8s.io/client-go", "reconciler", []string{"reconciler/tenant", "reconciler/app"}},
	{"sigs.k8s.io/controller-runtime", "reconciler",
		[]string{"reconciler", "reconciler/app", "reconciler/cloud", "reconciler/controller", "reconciler/inventory/store"}},
	{"net/http", "reconciler",
		[]string{"reconciler/app", "reconciler/cloud", "reconciler/dial", "reconciler/source", "reconciler/tenant"}},
	{"net", "reconciler", []string{"reconciler/dial", "reconciler/tenant"}},

	{module + "/reconciler/controller", ".", []string{"reconciler/app"}},
	{module + "/reconciler/app", ".", []string{"reconciler"}},
	{module + "/admission/app", ".", []string{"admission"}},
	{module + "/stagesetctl/app", ".", []string{"stagesetctl"}},
	{module + "/reconciler/build", "stagesetctl", []string{"stagesetctl/app", "stagesetctl/render"}},
	{module + "/reconciler/dial", "stagesetctl", []string{"stagesetctl/render"}},
	{module + "/reconciler/permissions", "stagesetctl", []string{"stagesetctl/app", "stagesetctl/render"}},
	{module + "/reconciler/source", "stagesetctl", []string{"stagesetctl/app", "stagesetctl/render"}},
	{module + "/reconciler/workload", "stagesetctl", []string{"stagesetctl/render"}},
	{module + "/process", ".", []string{"admission/app", "reconciler/app"}},

	{"k8s.io/apiserver", ".", []string{"policies/internal/celenv"}},
	{"github.com/google/cel-go", ".", []string{"policies/internal/celenv"}},
	{"github.com/open-policy-agent/cert-controller", ".", []string{"admission/certs"}},
	{"go.opentelemetry.io", ".",
		[]string{"admission/app", "admission/webhook", "e2e/collector", "process", "reconciler/controller"}},
	{"github.com/fluxcd", ".", []string{"reconciler/app", "reconciler/cloud", "reconciler/controller"}},
	{module + "/reconciler/cloud", ".", []string{"reconciler/tenant"}},
	{"sigs.k8s.io/kustomize", ".", []string{"reconciler/build", "stagesetctl/app"}},
	{"sigs.k8s.io/cli-utils", ".", []string{"reconciler/health"}},
	{"os/exec", ".", []string{"e2e/cluster", "e2e/controlplane/up", "e2e/demo", "e2e/gitserver", "e2e/process"}},
}

func TestImporters(t *testing.T) {
	imports := map[string]bool{} // "importer imported"
	for _, file := range sources(t) {
		if file.isTest() {
			continue
		}
		for _, imported := range file.imports(t) {
			for _, rule := range importers {
				if !covers(rule.imported, imported) || rule.in != "." && !within(file.dir(), rule.in) {
					continue
				}
				imports[file.dir()+" "+rule.imported] = true
				if !slices.Contains(rule.by, file.dir()) {
					t.Errorf("%s imports %s: in %s only %v may", file.path, imported, rule.in, rule.by)
				}
			}
		}
	}
	for _, rule := range importers {
		for _, by := range rule.by {
			if !imports[by+" "+rule.imported] {
				t.Errorf("%s may import %s, but does not: take it off the list", by, rule.imported)
			}
		}
	}
}

// reachingOut are packages that lead out of the process.
var reachingOut = []string{
	"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "net", "net/http", "os/exec", "syscall",
}

// pure packages compute: what they import cannot reach a cluster or the network.
var pure = []string{
	"policies", "policies/builtin", "policies/internal/celenv", "policies/internal/schema", "policies/kinds",
	"policies/policytest",
	"reconciler/build", "reconciler/failure", "reconciler/health", "reconciler/inventory", "reconciler/kubeconfig",
	"reconciler/permissions", "reconciler/queue", "reconciler/rollout", "reconciler/status", "reconciler/takeover",
	"reconciler/waves", "reconciler/workload",
}

func TestPurePackages(t *testing.T) {
	found := map[string]bool{}
	for _, file := range sources(t) {
		if file.isTest() || !slices.Contains(pure, file.dir()) {
			continue
		}
		found[file.dir()] = true
		for _, imported := range file.imports(t) {
			if dir, ours := inModule(imported); ours && firstFolder(dir) != "api" && !slices.Contains(pure, dir) {
				t.Errorf("%s is pure, but imports %s, which is not", file.path, dir)
			}
			for _, reaching := range reachingOut {
				if covers(reaching, imported) {
					t.Errorf("%s is pure, but imports %s", file.path, imported)
				}
			}
		}
	}
	if len(found) != len(pure) {
		t.Errorf("of the pure packages only %v exist", slices.Sorted(maps.Keys(found)))
	}
}

// The API is imported by people who want nothing else of us.
func TestAPIImports(t *testing.T) {
	for _, file := range sources(t) {
		if file.top() != "api" || file.isTest() {
			continue
		}
		for _, imported := range file.imports(t) {
			_, ours := inModule(imported)
			if !ours && !isStandard(imported) && !within(imported, "k8s.io/api") && !within(imported, "k8s.io/apimachinery") {
				t.Errorf("%s imports %s: only k8s.io/api and k8s.io/apimachinery are allowed", file.path, imported)
			}
		}
	}
}

// Who looks for something finds it.
func TestArchitectureNamesEveryPackage(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]bool{}
	for _, file := range sources(t) {
		if file.dir() != "." && !file.isTest() {
			packages[file.dir()] = true
		}
	}
	for dir := range packages {
		if !strings.Contains(string(text), path.Base(dir)+"/") {
			t.Errorf("ARCHITECTURE.md does not name %s", dir)
		}
	}
}

// covers says whether a rule about a package is about the imported one.
func covers(rule, imported string) bool {
	if isStandard(rule) {
		return rule == imported
	}
	return within(imported, rule)
}

// isStandard says whether a package is of the standard library: the others begin with a domain.
func isStandard(imported string) bool { return !strings.Contains(firstFolder(imported), ".") }
