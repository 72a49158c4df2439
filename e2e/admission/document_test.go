package admission_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/examples"
)

// TestDocument runs every command of docs/policies.md, in order, in a cluster with the policy config that it shows, and
// compares what it prints. The document knows the release as stageset of the namespace stageset-system.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	document, err := examples.Parse(string(text))
	if err != nil {
		t.Fatal("policies.md: ", err)
	}
	i := install(t)
	i.tenant = "shop"
	directory := t.TempDir()
	if err := document.Write(directory); err != nil {
		t.Fatal(err)
	}
	i.installWebhooks(t)
	i.start(t, "--policy-config="+filepath.Join(directory, "policy-config.yaml"))
	t.Cleanup(func() { i.forget(t) })
	shell := i.shell(t, directory)
	for _, command := range document.Commands {
		printed := shell(command.Text)
		printed = strings.ReplaceAll(printed, i.name+"/"+i.name, "stageset-system/stageset")
		printed = strings.ReplaceAll(printed, i.name+"-admission", "stageset-admission")
		if diff := cmp.Diff(examples.Visible(command.Prints), examples.Visible(printed)); diff != "" {
			t.Fatalf("policies.md:%d: %s (-document +printed):\n%s", command.Line, command.Text, diff)
		}
	}
}

// shell runs commands in a directory, with kubectl and stagesetctl as an administrator has them. It returns what they print.
func (i *installation) shell(t *testing.T, directory string) func(command string) string {
	t.Helper()
	tools := t.TempDir()
	controlPlane, err := cluster.Binary("controlplane") // which is kubectl, if it is called so
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(controlPlane, filepath.Join(tools, "kubectl")); err != nil {
		t.Fatal(err)
	}
	output, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", filepath.Join(tools, "stagesetctl"),
		"github.com/stageset/stageset/stagesetctl").CombinedOutput()
	if err != nil {
		t.Fatalf("building stagesetctl: %v\n%s", err, output)
	}
	return func(text string) string {
		command := exec.CommandContext(t.Context(), "bash", "-c", text)
		command.Dir = directory
		command.Env = append(os.Environ(), "KUBECONFIG="+i.Kubeconfig, "PATH="+tools+":"+os.Getenv("PATH"))
		printed, err := command.CombinedOutput()
		if err != nil && command.ProcessState == nil {
			t.Fatalf("%s: %v", text, err)
		}
		return string(printed)
	}
}

// forget deletes what the commands have made: other tests have policies of their own.
func (i *installation) forget(t *testing.T) {
	t.Helper()
	for _, object := range []client.Object{
		cluster.Ref("stages.metio.wtf/v1alpha1", "StageSetPolicy", "", "few-stages"), cluster.Ref("v1", "Namespace", "", "shop"),
	} {
		if err := client.IgnoreNotFound(i.client.Delete(context.Background(), object)); err != nil {
			t.Error(err)
		}
	}
}
