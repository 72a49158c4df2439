package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/e2e/examples"
)

// A tenant as docs/tenancy.md makes it releases.
func TestTenantAsTheDocumentSays(t *testing.T) {
	n := shared(t).bareTenant(t)
	n.Apply(t, documentedYAML(t, "tenancy.md", "kind: Namespace", "team-a", n.namespace))
	revision := n.source(t, "app", map[string]string{"a.yaml": documents(configMap("a", "1"), deployment("web", "1"))})
	n.stageSet(t, "app", oneStage("app"))
	n.waitReady(t, "app", "app", revision)
}

// documentedRemote is a tenant with the names of docs/multi-cluster.md, and the two clusters.
type documentedRemote struct {
	*remote
	revision string
}

// documentedRemote makes what the document takes to be there: the source, the Secret, and whom it leads to.
func (n *tenant) documentedRemote(t *testing.T) documentedRemote {
	t.Helper()
	d := documentedRemote{remote: &remote{tenant: n, there: otherCluster(t)}}
	d.there.Apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: hub}}\n---\n"+
		"{apiVersion: v1, kind: ServiceAccount, metadata: {name: hub, namespace: hub}}\n---\n"+
		"{apiVersion: v1, kind: Namespace, metadata: {name: "+n.namespace+"}}")
	d.kubeconfig(t, "production", kubeconfigOf(t, d.there.TokenConfig(t, "hub", "hub")))
	d.revision = n.source(t, "webshop", map[string]string{"shop/a.yaml": configMap("a", "1")})
	return d
}

// yaml is a block of the document with the tenant's own namespace.
func (d documentedRemote) yaml(t *testing.T, has string) string {
	t.Helper()
	return documentedYAML(t, "multi-cluster.md", has, "team-a", d.namespace)
}

// applied waits for what the document's StageSet applies there.
func (d documentedRemote) applied(t *testing.T) {
	t.Helper()
	d.waitReady(t, "webshop", "webshop", d.revision)
	d.there.WaitFor(t, d.configMap("a"))
}

// What docs/multi-cluster.md shows leads there: by a Secret and roles that somebody writes, and then by trust.
func TestOtherClustersAsTheDocumentSays(t *testing.T) {
	d := shared(t).tenant(t).documentedRemote(t)
	d.there.Apply(t, d.yaml(t, "name: impersonate-deployer"))
	d.there.Apply(t, d.yaml(t, "name: \"system:serviceaccount:team-a:deployer\""))
	d.Apply(t, d.yaml(t, "secretRef: {name: production}"))
	d.applied(t)
	d.delete(t, "webshop")
	d.gone(t, "webshop")
	d.there.WaitGone(t, d.configMap("a"))

	d.trusted(t)
	for document := range strings.SplitSeq(d.yaml(t, "provider: generic"), "\n---\n") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		if data, is := object["data"].(map[string]any); is {
			config := rest.CopyConfig(d.there.Config)
			if err := rest.LoadTLSFiles(config); err != nil {
				t.Fatal(err)
			}
			data["address"], data["ca.crt"] = config.Host, string(config.CAData)
		}
		text, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		d.Apply(t, string(text))
	}
	d.applied(t)
}

// The commands of docs/multi-cluster.md give accounts and the kubeconfig's user, who have nothing, what they need.
func TestRolesForTwoClustersAsTheDocumentSays(t *testing.T) {
	n := shared(t).bareTenant(t)
	n.account(t, deployer)
	d := n.documentedRemote(t)
	d.Apply(t, d.yaml(t, "secretRef: {name: production}"))
	content, err := os.ReadFile("../docs/multi-cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	scripts, err := examples.Scripts(string(content))
	if err != nil {
		t.Fatal(err)
	}
	for _, script := range examples.Runnable(scripts) {
		d.script(t, strings.ReplaceAll(script.Text, "team-a", d.namespace))
	}
	d.request(t, "webshop", "granted")
	d.applied(t)
}

// script runs commands as somebody does whose kubeconfig leads to the one cluster, and by the context production to the other.
func (d documentedRemote) script(t *testing.T, text string) {
	t.Helper()
	tools := t.TempDir()
	for name, program := range map[string]string{
		"kubectl": binary(t, "controlplane") + "' 'kubectl", "stagesetctl": binary(t, "stagesetctl"),
	} {
		script := fmt.Sprintf("#!/bin/sh\nexec '%s' \"$@\"\n", program)
		if err := os.WriteFile(filepath.Join(tools, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", text)
	command.Env = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"), "KUBECONFIG="+d.contexts(t))
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", text, err, output)
	}
}

// contexts is a kubeconfig file with a context for each cluster.
func (d documentedRemote) contexts(t *testing.T) string {
	t.Helper()
	home, err := clientcmd.LoadFromFile(d.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	there, err := clientcmd.LoadFromFile(d.there.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	current := there.Contexts[there.CurrentContext]
	home.Clusters["production"], home.AuthInfos["production"] = there.Clusters[current.Cluster], there.AuthInfos[current.AuthInfo]
	current.Cluster, current.AuthInfo = "production", "production"
	home.Contexts["production"] = current
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*home, path); err != nil {
		t.Fatal(err)
	}
	return path
}
