// Package chart_test installs the chart with the real helm, on a real API server that admits only restricted Pods, and runs
// the built programs with exactly what was rendered: arguments, policy config, and tokens of the accounts that the chart
// binds. It never renders the chart by other means than helm's.
package chart_test

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/e2e/cluster"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // what clients would log is in the tests' own failures
	os.Exit(cluster.Run(m, cluster.WithNodes()))
}

var update = flag.Bool("update", false, "write the golden files instead of comparing them")

const (
	chart = "../../charts/stageset"
	// name and namespace are those of a release that is only rendered: neither is what the files of the chart have.
	name      = "delivery"
	namespace = "delivery-system"
)

// helm runs helm with no configuration of the user's, and returns what it prints.
func helm(t testing.TB, args ...string) (string, error) {
	t.Helper()
	path, err := cluster.Binary("helm")
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	command := exec.CommandContext(t.Context(), path, args...)
	command.Env = append(os.Environ(), "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "HELM_CACHE_HOME="+home)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String(), fmt.Errorf("helm %s: %w\n%s%s", strings.Join(args, " "), err, &stdout, &stderr)
	}
	return stdout.String(), nil
}

// valuesFile writes values for helm's --values.
func valuesFile(t testing.TB, values string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(path, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// render is what the chart makes of values, sorted by kind and name.
func render(t testing.TB, values string) []*unstructured.Unstructured {
	t.Helper()
	output, err := helm(t, "template", name, chart, "--namespace", namespace, "--values", valuesFile(t, values))
	if err != nil {
		t.Fatal(err)
	}
	objects := parse(t, output)
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int {
		return strings.Compare(describe(a), describe(b))
	})
	return objects
}

func parse(t testing.TB, manifests string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(manifests)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(document, &object.Object); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// describe names an object: "RoleBinding team-a/delivery-reconciler".
func describe(object *unstructured.Unstructured) string {
	return object.GetKind() + " " + strings.TrimPrefix(object.GetNamespace()+"/"+object.GetName(), "/")
}
