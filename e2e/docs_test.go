package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

var yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")

// notObjects are the apiVersions in the documents of what is read from files and never sent to an API server, and of what
// this cluster has nothing of.
var notObjects = []string{
	"", "kustomize.config.k8s.io/v1beta1", "kustomize.config.k8s.io/v1alpha1", "cert-manager.io/v1",
	"apiserver.config.k8s.io/v1",
}

// Every object in the documents is one that the API server takes as it is written there: no field is unknown, and none is
// missing. What policies.md shows, and sources-and-builds.md but for StageSets and their sources, is read from files, by
// stagesetctl and by builds, and tested there (e2e/admission, docs).
func TestObjectsInTheDocuments(t *testing.T) {
	n := shared(t).tenant(t)
	paths, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	sent := map[string]int{}
	for _, path := range append(paths, "../README.md") {
		name := filepath.Base(path)
		if name == "policies.md" {
			continue
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range yamlBlock.FindAllStringSubmatch(string(content), -1) {
			for _, document := range regexp.MustCompile("(?m)^---$").Split(block[1], -1) {
				var object unstructured.Unstructured
				if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
					t.Errorf("%s: %v in\n%s", path, err, document)
					continue
				}
				if slices.Contains(notObjects, object.GetAPIVersion()) ||
					name == "sources-and-builds.md" && !slices.Contains([]string{"StageSet", "ExternalArtifact"}, object.GetKind()) {
					continue
				}
				sent[object.GetKind()]++
				n.acceptable(t, path, &object)
			}
		}
	}
	if sent["StageSet"] == 0 || sent["RoleBinding"] == 0 || sent["ExternalArtifact"] == 0 {
		t.Errorf("the documents have %v", sent)
	}
}

// acceptable has the API server look at an object, in the tenant's namespace if it is for one, and store nothing.
func (n *tenant) acceptable(t *testing.T, path string, object *unstructured.Unstructured) {
	t.Helper()
	namespaced, err := n.Client.IsObjectNamespaced(object)
	if err != nil {
		t.Errorf("%s: %s %s: %v", path, object.GetKind(), object.GetName(), err)
		return
	}
	if namespaced {
		object.SetNamespace(n.namespace)
	}
	strict := client.WithFieldValidation(n.Client, "Strict")
	sent := client.ApplyConfigurationFromUnstructured(object)
	if err := strict.Apply(t.Context(), sent, client.FieldOwner("docs"), client.DryRunAll); err != nil {
		text, _ := yaml.Marshal(object.Object)
		t.Errorf("%s: %s %s: %v\n%s", path, object.GetKind(), object.GetName(), err, strings.TrimSpace(string(text)))
	}
}
