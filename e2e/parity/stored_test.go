package parity_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/api/crds"
	"github.com/stageset/stageset/e2e/cluster"
)

// stored is what becomes of an object.
type stored struct {
	// Refused are the fields for which it is not stored, sorted.
	Refused []string
	// Spec is what is stored.
	Spec any
}

// TestStored: stagesetctl fills in and refuses what the API server does, so that policies are asked about the same object.
func TestStored(t *testing.T) {
	const stages = "stages: [{name: web, sourceRef: {name: app}}]"
	c := cluster.Shared(t)
	program := build(t)
	c.InstallCRDs(t, crds.FS)
	for name, object := range map[string]string{
		"the least":            "{metadata: {name: app}, spec: {" + stages + "}}",
		"a made-up name":       "{metadata: {generateName: app-}, spec: {" + stages + "}}",
		"no name":              "{metadata: {}, spec: {" + stages + "}}",
		"no name that is one":  "{metadata: {name: My app}, spec: {" + stages + "}}",
		"no label that is one": "{metadata: {name: app, labels: {'not ok': 'also not'}}, spec: {" + stages + "}}",
		"no spec":              "{metadata: {name: app}}",
		"no stages":            "{metadata: {name: app}, spec: {stages: []}}",
		"null":                 "{metadata: {name: app}, spec: {interval: null, deletionPolicy: null, " + stages + "}}",
		"defaults in lists": "{metadata: {name: app}, spec: {dependsOn: [{name: a}, {name: b, namespace: c}], " +
			"stages: [{name: web, sourceRef: {name: app}, path: '', prune: false}]}}",
		"an unknown field":               "{metadata: {name: app}, spec: {itnerval: 5m, " + stages + "}}",
		"an unknown field in a list":     "{metadata: {name: app}, spec: {stages: [{name: web, sourceRef: {name: app, tag: x}}]}}",
		"an unknown field in metadata":   "{metadata: {name: app, lables: {a: b}}, spec: {" + stages + "}}",
		"an unknown field at the top":    "{metadata: {name: app}, spce: {}, spec: {" + stages + "}}",
		"values that are not allowed":    "{metadata: {name: app}, spec: {deletionPolicy: Never, timeout: soon, " + stages + "}}",
		"two stages of one name":         "{metadata: {name: app}, spec: {stages: [" + many(1) + ", " + many(1) + "]}}",
		"the same dependency twice":      "{metadata: {name: app}, spec: {dependsOn: [{name: a}, {name: a}], " + stages + "}}",
		"a stage without source":         "{metadata: {name: app}, spec: {stages: [{name: web}]}}",
		"a text for a list":              "{metadata: {name: app}, spec: {stages: web}}",
		"a text for a switch":            "{metadata: {name: app}, spec: {suspend: 'yes', " + stages + "}}",
		"a number for a text":            "{metadata: {name: app}, spec: {interval: 5, " + stages + "}}",
		"a status, which is not a spec":  "{metadata: {name: app}, spec: {" + stages + "}, status: {observedGeneration: 1}}",
		"too many stages":                "{metadata: {name: app}, spec: {stages: [" + many(65) + "]}}",
		"as many stages as there can be": "{metadata: {name: app}, spec: {stages: [" + many(64) + "]}}",
	} {
		t.Run(name, func(t *testing.T) {
			parsed := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(object), &parsed.Object); err != nil {
				t.Fatal(err)
			}
			parsed.SetAPIVersion("stages.metio.wtf/v1")
			parsed.SetKind("StageSet")
			parsed.SetNamespace("default")
			if diff := cmp.Diff(storedByUs(t, program, parsed), storedNatively(t, c, parsed)); diff != "" {
				t.Errorf("stored (-ours +native):\n%s", diff)
			}
		})
	}
}

func many(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("{name: s%d, sourceRef: {name: app}}", i))
	}
	return strings.Join(list, ", ")
}

const anything = `
apiVersion: stages.metio.wtf/v1alpha1
kind: StageSetPolicy
metadata: {name: anything}
spec: {validations: [{name: is-asked, expression: object.spec.stages.size() > 0, message: m}]}
`

// failedField is the field in what stagesetctl says.
var failedField = regexp.MustCompile(`^\S+:\d+:\d+: (\S+): `)

func storedByUs(t *testing.T, program string, object *unstructured.Unstructured) stored {
	t.Helper()
	policy, file := filepath.Join(t.TempDir(), "policy.yaml"), filepath.Join(t.TempDir(), "object.yaml")
	write(t, policy, anything)
	write(t, file, marshal(t, object.Object))
	output, problems := stagesetctl(t, program, "policy", "test", policy, "--object", file, "--output", "json")
	var suites []struct {
		Object map[string]any
		Cases  []struct {
			Name     string
			Failures []string
		}
	}
	if err := json.Unmarshal(output, &suites); err != nil || problems != "" {
		t.Fatalf("%v:\n%s\n%s", err, output, problems)
	}
	result := stored{Spec: suites[0].Object["spec"]}
	for _, one := range suites[0].Cases {
		for _, failure := range one.Failures {
			match := failedField.FindStringSubmatch(failure)
			if one.Name != "schema" || match == nil {
				t.Fatalf("is not refused by the schema: %s", failure)
			}
			result.Refused = append(result.Refused, match[1])
		}
	}
	return result.sorted()
}

// unknownField is the field in what the API server says of one that it does not know.
var unknownField = regexp.MustCompile(`unknown field "([^"]+)"`)

func storedNatively(t *testing.T, c *cluster.Cluster, object *unstructured.Unstructured) stored {
	t.Helper()
	object = object.DeepCopy()
	err := c.Client(t).Create(t.Context(), object, client.DryRunAll, client.FieldValidation("Strict"))
	if err == nil {
		return stored{Spec: object.Object["spec"]}
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		t.Fatal(err)
	}
	var result stored
	if details := status.Status().Details; details != nil {
		for _, cause := range details.Causes {
			result.Refused = append(result.Refused, strings.TrimPrefix(cause.Field, "<nil>."))
		}
	}
	for _, match := range unknownField.FindAllStringSubmatch(status.Status().Message, -1) {
		result.Refused = append(result.Refused, match[1])
	}
	if len(result.Refused) == 0 {
		t.Fatalf("refused, but for no field: %v", err)
	}
	return result.sorted()
}

// sorted has each field once; of what is refused, nothing is stored.
func (s stored) sorted() stored {
	slices.Sort(s.Refused)
	s.Refused = slices.Compact(s.Refused)
	if len(s.Refused) > 0 {
		s.Spec = nil
	}
	return s
}
