package chart_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stageset/stageset/e2e/cluster"
)

var block = regexp.MustCompile("(?ms)^```\n(.*?)^```$")

// The commands of docs/installing.md do what it says, one after the other, but for those that need a container engine.
func TestInstallingAsDocumented(t *testing.T) {
	withoutCRDs(t)
	c := cluster.Shared(t)
	content, err := os.ReadFile("../../docs/installing.md")
	if err != nil {
		t.Fatal(err)
	}
	environment := append(os.Environ(), "KUBECONFIG="+c.Kubeconfig, "PATH="+tools(t)+":"+os.Getenv("PATH"))
	for _, home := range []string{"HELM_CONFIG_HOME", "HELM_DATA_HOME", "HELM_CACHE_HOME"} {
		environment = append(environment, home+"="+t.TempDir())
	}
	t.Cleanup(func() {
		system := cluster.Ref("v1", "Namespace", "", "stageset-system")
		if err := c.Client(t).Delete(uncancelled{t}.Context(), system); err != nil {
			t.Error(err)
		}
	})
	ran := 0
	for _, match := range block.FindAllStringSubmatch(string(content), -1) {
		if strings.HasPrefix(match[1], "docker ") {
			continue
		}
		ran++
		command := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", match[1])
		command.Dir, command.Env = filepath.Join("..", ".."), environment
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", match[1], err, output)
		}
	}
	if ran != 5 {
		t.Errorf("%d blocks of commands: to install, to set a key, to upgrade, to uninstall, and to remove the rest", ran)
	}
	for _, object := range []string{"stagesets", "stageinventories", "stagesetpolicies"} {
		c.WaitGone(t, cluster.Ref("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", object+".stages.metio.wtf"))
	}
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
