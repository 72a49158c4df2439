package e2e

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// The commands of docs/tenancy.md: the first, about a StageSet that is in the cluster and artifacts behind another address,
// gives an account what it needs; the second, about files, says the same of an account that has nothing, and then that
// nothing is missing.
func TestPrintedRolesAsTheDocumentSays(t *testing.T) {
	n := shared(t).bareTenant(t)
	n.account(t, deployer)
	var downloads atomic.Int32
	forwarded := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		downloads.Add(1)
		n.Artifacts.ServeHTTP(w, request)
	}))
	t.Cleanup(forwarded.Close)
	manifests := documents(configMap("settings", "1"), deployment("web", "1"))
	revision := n.source(t, "app", map[string]string{"all.yaml": manifests})
	n.stageSet(t, "app", oneStage("app"))
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonAccessDenied))
	files := writeFiles(t, map[string]string{
		"stageset.yaml": n.stageSetYAML(t, "app", oneStage("app")), "deploy/all.yaml": manifests,
	})
	commands := documentedCommands(t, "tenancy.md", "stagesetctl rbac ",
		"team-a", n.namespace, "http://localhost:8080", forwarded.URL, "stageset.yaml", files+"/stageset.yaml",
		"deploy/", files+"/deploy")
	if len(commands) != 2 {
		t.Fatalf("the document has %q, want two", commands)
	}
	run := func(command string) string {
		return stagesetctl(t, append(strings.Fields(command)[1:], "--kubeconfig", n.Kubeconfig)...)
	}

	printed := run(commands[0])
	if downloads.Load() != 1 {
		t.Errorf("--artifact-server was asked %d times, want once", downloads.Load())
	}
	if diff := cmp.Diff(printed, run(commands[1])); diff != "" {
		t.Errorf("of the cluster and of the files (-want +got):\n%s", diff)
	}
	n.grantPrinted(t, printed)
	n.request(t, "app", "granted")
	n.waitReady(t, "app", "app", revision)
	if left := run(commands[1]); left != "" {
		t.Errorf("missing all the same:\n%s", left)
	}
}

// documentedCommands are the lines of a document that begin so, without what they are piped to, and with the texts replaced,
// each by the one that follows it.
func documentedCommands(t *testing.T, name, beginning string, replace ...string) []string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for line := range strings.Lines(string(content)) {
		if strings.HasPrefix(line, beginning) {
			command, _, _ := strings.Cut(strings.TrimSpace(line), " | ")
			commands = append(commands, strings.NewReplacer(replace...).Replace(command))
		}
	}
	return commands
}

// documentedYAML is the first block of YAML in a document that has a text in it, with texts replaced, each by the one that
// follows it.
func documentedYAML(t testing.TB, name, has string, replace ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range yamlBlock.FindAllStringSubmatch(string(content), -1) {
		if strings.Contains(block[1], has) {
			return strings.NewReplacer(replace...).Replace(block[1])
		}
	}
	t.Fatalf("%s has no block with %q", name, has)
	return ""
}

// writeFiles is a new directory with these files.
func writeFiles(t *testing.T, texts map[string]string) string {
	t.Helper()
	directory := t.TempDir()
	for name, text := range texts {
		path := filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}
