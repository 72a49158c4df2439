package chart_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/examples"
)

// The commands of docs/installing.md do what it says, one after the other, but for those that it marks.
func TestInstallingAsDocumented(t *testing.T) {
	withoutCRDs(t)
	c := cluster.Shared(t)
	shell := newShell(t, c.Kubeconfig)
	t.Cleanup(func() {
		system := cluster.Ref("v1", "Namespace", "", "stageset-system")
		if err := c.Client(t).Delete(uncancelled{t}.Context(), system); err != nil {
			t.Error(err)
		}
	})
	for _, script := range scripts(t, "docs/installing.md") {
		shell.run(t, script.Text)
	}
	for _, object := range []string{"stagesets", "stageinventories", "stagesetpolicies"} {
		c.WaitGone(t, cluster.Ref("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", object+".stages.metio.wtf"))
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

// shell runs scripts as somebody does who has the repository, kubectl and helm, and has pushed images.
type shell struct {
	folder      string
	environment []string
}

func newShell(t *testing.T, kubeconfig string) shell {
	t.Helper()
	s := shell{folder: t.TempDir(), environment: append(os.Environ(),
		"KUBECONFIG="+kubeconfig, "PATH="+tools(t)+":"+os.Getenv("PATH"),
		"REGISTRY=registry.example.com/platform", "VERSION=0.1.0")}
	for _, home := range []string{"HELM_CONFIG_HOME", "HELM_DATA_HOME", "HELM_CACHE_HOME"} {
		s.environment = append(s.environment, home+"="+t.TempDir())
	}
	charts, err := filepath.Abs(filepath.Join(repository, "charts"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(charts, filepath.Join(s.folder, "charts")); err != nil {
		t.Fatal(err)
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

// tools is a folder with kubectl and helm.
func tools(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for tool, in := range map[string]struct{ binary, command string }{
		"kubectl": {"controlplane", "kubectl"}, "helm": {"helm", ""},
	} {
		path, err := cluster.Binary(in.binary)
		if err != nil {
			t.Fatal(err)
		}
		script := fmt.Sprintf("#!/bin/sh\nexec '%s' %s \"$@\"\n", path, in.command)
		if err := os.WriteFile(filepath.Join(folder, tool), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}
