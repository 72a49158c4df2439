package chart_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/examples"
)

// The commands of docs/installing.md do what it says, one after the other, but for those that it marks. After the
// uninstallation StageSets are left over.
func TestInstallingAsDocumented(t *testing.T) {
	withoutCRDs(t)
	c := cluster.Shared(t)
	namespace := c.Namespace(t, "left-over")
	shell := newShell(t, c.Kubeconfig)
	t.Cleanup(func() { deleteNamespaces(uncancelled{t}, c, "stageset-system") })
	for _, script := range scripts(t, "docs/installing.md") {
		shell.run(t, script.Text)
		switch {
		case strings.Contains(script.Text, "helm uninstall "):
			leaveOver(t, c, namespace)
		case strings.Contains(script.Text, "/(finalizer|inventory)"):
			checkLeftOver(t, c, namespace)
		}
	}
	for _, object := range []string{"stagesets", "stageinventories", "stagesetpolicies"} {
		c.WaitGone(t, cluster.Ref("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", object+".stages.metio.wtf"))
	}
}

// leaveOver leaves a StageSet behind, with what it has applied and recorded, and one whose deletion waits.
func leaveOver(t *testing.T, c *cluster.Cluster, namespace string) {
	t.Helper()
	const stageSet = `
apiVersion: stages.metio.wtf/v1
kind: StageSet
metadata: {name: %s, namespace: %s, finalizers: [%s]}
spec:
  serviceAccountName: deployer
  stages:
  - {name: app, sourceRef: {kind: GitRepository, name: app}}
`
	c.Apply(t, fmt.Sprintf(stageSet, "waits", namespace, v1.Finalizer))
	waits := cluster.Ref(v1.GroupVersion.String(), "StageSet", namespace, "waits")
	if err := c.Client(t).Delete(t.Context(), waits); err != nil {
		t.Fatal(err)
	}
	c.Apply(t, fmt.Sprintf(stageSet, "stays", namespace, v1.Finalizer+", "+othersFinalizer))
	c.Apply(t, fmt.Sprintf(`
apiVersion: stages.metio.wtf/v1
kind: StageInventory
metadata: {name: stays, namespace: %[1]s, finalizers: [%[2]s]}
spec: {stageSet: stays, stage: app, position: 0, target: {cluster: local}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: stays, namespace: %[1]s}
`, namespace, v1.InventoryFinalizer))
}

// othersFinalizer is one that is not the product's to take away.
const othersFinalizer = "example.com/hold"

// checkLeftOver checks that the product holds nothing any more, and that everything else is as it was.
func checkLeftOver(t *testing.T, c *cluster.Cluster, namespace string) {
	t.Helper()
	c.WaitGone(t, cluster.Ref(v1.GroupVersion.String(), "StageSet", namespace, "waits"))
	for kind, want := range map[string][]string{"StageSet": {othersFinalizer}, "StageInventory": nil} {
		live := c.WaitFor(t, cluster.Ref(v1.GroupVersion.String(), kind, namespace, "stays"))
		if diff := cmp.Diff(want, live.GetFinalizers()); diff != "" {
			t.Errorf("finalizers of the %s (-want +got):\n%s", kind, diff)
		}
		live.SetFinalizers(nil)
		if err := c.Client(t).Update(t.Context(), live); err != nil {
			t.Fatal(err)
		}
	}
	c.WaitFor(t, cluster.Ref("v1", "ConfigMap", namespace, "stays"))
}

// deleteNamespaces returns when they are gone, so that another document can begin with the same names.
func deleteNamespaces(t testing.TB, c *cluster.Cluster, names ...string) {
	t.Helper()
	for _, name := range names {
		object := cluster.Ref("v1", "Namespace", "", name)
		if err := client.IgnoreNotFound(c.Client(t).Delete(t.Context(), object)); err != nil {
			t.Error(err)
		}
	}
	for _, name := range names {
		c.WaitGone(t, cluster.Ref("v1", "Namespace", "", name))
	}
}

// repository is where the documents are.
const repository = "../.."

// scripts are those of a document that a test can run.
func scripts(t *testing.T, document string) []examples.Script {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repository, document))
	if err != nil {
		t.Fatal(err)
	}
	all, err := examples.Scripts(string(content))
	if err != nil {
		t.Fatalf("%s: %v", document, err)
	}
	return examples.Runnable(all)
}

// shell runs scripts as somebody does who has a clone of the repository, the tools, and has pushed images.
type shell struct {
	folder      string
	environment []string
}

// newShell is one for a cluster. Releases that it installs or upgrades get these files of values, too.
func newShell(t *testing.T, kubeconfig string, values ...string) shell {
	t.Helper()
	s := shell{folder: t.TempDir(), environment: append(os.Environ(),
		"KUBECONFIG="+kubeconfig, "PATH="+tools(t, values)+":"+os.Getenv("PATH"),
		"REGISTRY=registry.example.com/platform", "VERSION=0.1.0")}
	for _, home := range []string{"HELM_CONFIG_HOME", "HELM_DATA_HOME", "HELM_CACHE_HOME"} {
		s.environment = append(s.environment, home+"="+t.TempDir())
	}
	for _, part := range []string{"charts", "e2e/demo/example"} {
		if err := os.CopyFS(filepath.Join(s.folder, part), os.DirFS(filepath.Join(repository, part))); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// run runs a script, and returns what it prints.
func (s shell) run(t *testing.T, script string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	command.Dir, command.Env = s.folder, s.environment
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, output)
	}
	return string(output)
}

// tools is a folder with kubectl, helm, which also takes these files of values, and stagesetctl.
func tools(t *testing.T, values []string) string {
	t.Helper()
	more := ""
	for _, file := range values {
		more += " --values '" + file + "'"
	}
	folder := t.TempDir()
	for tool, script := range map[string]struct{ binary, text string }{
		"kubectl":     {"controlplane", `exec '%s' kubectl "$@"`},
		"helm":        {"helm", `case "$1" in install|upgrade) set -- "$@"` + more + `;; esac; exec '%s' "$@"`},
		"stagesetctl": {"stagesetctl", `exec '%s' "$@"`},
	} {
		path, err := cluster.Binary(script.binary)
		if err != nil {
			t.Fatal(err)
		}
		text := "#!/bin/sh\n" + fmt.Sprintf(script.text, path) + "\n"
		if err := os.WriteFile(filepath.Join(folder, tool), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}
