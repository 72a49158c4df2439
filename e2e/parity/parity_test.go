// Package parity_test holds what stagesetctl exports against the API server: the same cases are decided by its own evaluator
// of ValidatingAdmissionPolicies and by ours. It imports nothing of the product's inside, and never starts a webhook.
package parity_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/api/crds"
	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/e2e/cluster"
)

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

// label tells which exported policy is for an object: each case has its own.
const label = "parity.metio.wtf/case"

// decided is what is said about an object.
type decided struct {
	Denied bool
	// Messages are all violations, sorted.
	Messages []string
	// Spec is what the object has after mutations.
	Spec any
}

// TestBuiltIn: the built-in policies, exported, say the same of all their cases.
func TestBuiltIn(t *testing.T) {
	c := cluster.Shared(t)
	program := build(t)
	installCRD(t, c)
	var all []*comparison
	for _, name := range builtInNames(t, program) {
		all = append(all, prepare(t, c, program, name)...)
	}
	awaitPolicies(t, c)
	for _, one := range all {
		t.Run(one.name, func(t *testing.T) {
			if diff := cmp.Diff(one.ours(t), one.native(t, c)); diff != "" {
				t.Errorf("verdicts (-ours +native):\n%s", diff)
			}
		})
	}
}

// build builds stagesetctl.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stagesetctl")
	command := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", path, "./stagesetctl")
	command.Dir = filepath.Join("..", "..")
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("building stagesetctl: %v\n%s", err, output)
	}
	return path
}

// stagesetctl is the output of a command, which may find something wrong.
func stagesetctl(t *testing.T, program string, arguments ...string) []byte {
	t.Helper()
	var stderr bytes.Buffer
	command := exec.CommandContext(t.Context(), program, arguments...)
	command.Stderr = &stderr
	output, err := command.Output()
	if stderr.Len() > 0 {
		t.Fatalf("stagesetctl %v: %v\n%s", arguments, err, stderr.String())
	}
	return output
}

// installCRD installs StageSets without a schema: what the schema refuses, no policy would see.
func installCRD(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	const file = "stages.metio.wtf_stagesets.yaml"
	content, err := crds.FS.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := yaml.Unmarshal(content, &fields); err != nil {
		t.Fatal(err)
	}
	versions, _, err := unstructured.NestedSlice(fields, "spec", "versions")
	if err != nil {
		t.Fatal(err)
	}
	for i := range versions {
		versions[i].(map[string]any)["schema"] = map[string]any{"openAPIV3Schema": map[string]any{
			"type": "object", "x-kubernetes-preserve-unknown-fields": true,
			"properties": map[string]any{"spec": map[string]any{
				"type": "object", "x-kubernetes-preserve-unknown-fields": true,
			}},
		}}
		delete(versions[i].(map[string]any), "additionalPrinterColumns")
	}
	if err := unstructured.SetNestedSlice(fields, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	c.InstallCRDs(t, fstest.MapFS{file: {Data: text}})
}

func builtInNames(t *testing.T, program string) []string {
	t.Helper()
	var names []string
	for line := range strings.Lines(string(stagesetctl(t, program, "policy", "list", "--builtin"))) {
		if fields := strings.Fields(line); fields[0] != "NAME" {
			names = append(names, fields[0])
		}
	}
	if len(names) == 0 {
		t.Fatal("there are no built-in policies")
	}
	return names
}

// elsewhere are the policies that have cases which are not compared here, and why.
var elsewhere = map[string]string{
	"author-may-use-service-account": "what its users may do is said in the cases, and not by RBAC",
}

// prepare installs, for each case of a built-in policy, the policy as it is exported for that case.
func prepare(t *testing.T, c *cluster.Cluster, program, name string) []*comparison {
	t.Helper()
	var policy v1alpha1.StageSetPolicy
	if err := yaml.UnmarshalStrict(stagesetctl(t, program, "policy", "show", name, "--builtin"), &policy); err != nil {
		t.Fatal(err)
	}
	if policy.Spec.Target != "" && policy.Spec.Target != v1alpha1.TargetStageSet {
		return nil // no request to the API server has what it is about
	}
	var found []*comparison
	for i, test := range policy.Spec.Tests {
		if test.Object == nil || test.OldObject != nil || test.User != nil || test.Permissions != nil {
			if elsewhere[name] == "" {
				t.Errorf("%s/%s is not a creation by just anybody: it cannot be compared", name, test.Name)
			}
			continue
		}
		one := newComparison(t, program, policy, i)
		c.Apply(t, one.export(t))
		c.Apply(t, one.namespace)
		found = append(found, one)
	}
	if len(found) == 0 {
		t.Errorf("no case of %s is compared", name)
	}
	return found
}

// comparison is one case of a policy.
type comparison struct {
	name, program, dir string
	label              string
	namespace          string // as YAML
	object             *unstructured.Unstructured
	arguments          []string // for stagesetctl
}

func newComparison(t *testing.T, program string, policy v1alpha1.StageSetPolicy, i int) *comparison {
	t.Helper()
	test := policy.Spec.Tests[i]
	one := &comparison{
		name: policy.Name + "/" + test.Name, program: program, dir: t.TempDir(), label: fmt.Sprintf("%s-%d", policy.Name, i),
	}
	one.object = &unstructured.Unstructured{}
	if err := json.Unmarshal(test.Object.Raw, &one.object.Object); err != nil {
		t.Fatal(err)
	}
	one.object.SetAPIVersion("stages.metio.wtf/v1")
	one.object.SetKind("StageSet")
	one.object.SetLabels(map[string]string{label: one.label})
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	if test.Namespace != nil {
		if err := json.Unmarshal(test.Namespace.Raw, &namespace.Object); err != nil {
			t.Fatal(err)
		}
		namespace.SetAPIVersion("v1")
		namespace.SetKind("Namespace")
	}
	switch {
	case test.Namespace != nil && one.object.GetNamespace() == "":
		// Cases have different Namespaces of one name.
		namespace.SetName("of-" + one.label)
	case namespace.GetName() != "":
	case one.object.GetNamespace() != "":
		namespace.SetName(one.object.GetNamespace())
	default:
		namespace.SetName("tenant")
	}
	one.object.SetNamespace(namespace.GetName())
	one.namespace = marshal(t, namespace.Object)

	policy.Name, policy.Spec.Tests = one.label, nil
	if policy.Spec.MatchConstraints == nil {
		policy.Spec.MatchConstraints = &v1alpha1.MatchConstraints{}
	}
	constraints := policy.Spec.MatchConstraints.DeepCopy()
	constraints.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{label: one.label}}
	policy.Spec.MatchConstraints = constraints
	one.arguments = []string{one.file(t, "policy.yaml", marshal(t, policy))}
	platform := []string{}
	if test.Tenant != nil && !*test.Tenant {
		platform = append(platform, namespace.GetName())
	}
	one.arguments = append(one.arguments, "--policy-config",
		one.file(t, "config.yaml", marshal(t, map[string]any{"platformNamespaces": platform})))
	if test.Params != nil {
		one.arguments = append(one.arguments, "--params", one.file(t, "params.yaml", string(test.Params.Raw)))
	}
	return one
}

// file is the path of a new file with content.
func (c *comparison) file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func marshal(t *testing.T, value any) string {
	t.Helper()
	content, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// export is what stagesetctl makes of the policy. Its binding is there twice, to refuse and to warn: a refusal has only the
// first violation, but there is a warning for each.
func (c *comparison) export(t *testing.T) string {
	t.Helper()
	exported := string(stagesetctl(t, c.program, append([]string{"policy", "export"}, c.arguments...)...))
	all := exported
	for document := range strings.SplitSeq(exported, "---\n") {
		if !strings.Contains(document, "kind: ValidatingAdmissionPolicyBinding\n") {
			continue
		}
		binding := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &binding.Object); err != nil {
			t.Fatal(err)
		}
		binding.SetName(binding.GetName() + "-warn")
		if err := unstructured.SetNestedStringSlice(binding.Object, []string{"Warn"}, "spec", "validationActions"); err != nil {
			t.Fatal(err)
		}
		all += "---\n" + marshal(t, binding.Object)
	}
	return all
}

// ours is what stagesetctl says of the case. What is filled in is compared by the policy's own test, whose outcome it shows.
func (c *comparison) ours(t *testing.T) decided {
	t.Helper()
	arguments := append([]string{"policy", "test"}, c.arguments...)
	arguments = append(arguments, "--output", "json", "--object", c.file(t, "object.yaml", marshal(t, c.object.Object)),
		"--namespace-object", c.file(t, "namespace.yaml", c.namespace))
	var suites []struct {
		Object map[string]any
		Cases  []struct {
			Violations []struct{ Action, Message string }
		}
	}
	output := stagesetctl(t, c.program, arguments...)
	if err := json.Unmarshal(output, &suites); err != nil {
		t.Fatalf("%v:\n%s", err, output)
	}
	result := decided{Spec: suites[0].Object["spec"]}
	for _, violation := range suites[0].Cases[0].Violations {
		result.Denied = result.Denied || violation.Action == "Deny"
		result.Messages = append(result.Messages, violation.Message)
	}
	slices.Sort(result.Messages)
	return result.withoutSpecIfDenied()
}

// withoutSpecIfDenied is d: nobody sees what would have been filled into what is refused.
func (d decided) withoutSpecIfDenied() decided {
	if d.Denied {
		d.Spec = nil
	}
	return d
}

// warnings collects the warnings of requests.
type warnings []string

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }

// native is what the API server says of the case.
func (c *comparison) native(t *testing.T, shared *cluster.Cluster) decided {
	t.Helper()
	var warned warnings
	config := rest.CopyConfig(shared.Config)
	config.WarningHandler = &warned
	writer, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	object := c.object.DeepCopy()
	err = writer.Create(t.Context(), object, client.DryRunAll)
	result := decided{Denied: err != nil, Spec: object.Object["spec"]}
	prefix := fmt.Sprintf("Validation failed for ValidatingAdmissionPolicy '%s' with binding '%[1]s-warn': ", c.label)
	for _, text := range warned {
		if message, ok := strings.CutPrefix(text, prefix); ok {
			result.Messages = append(result.Messages, message)
		}
	}
	slices.Sort(result.Messages)
	if err != nil {
		denial := fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%[1]s' denied request: ", c.label)
		_, message, found := strings.Cut(err.Error(), denial)
		if !apierrors.IsInvalid(err) || !found || !slices.Contains(result.Messages, message) {
			t.Errorf("refused, but not by the policy with one of the messages %q: %v", result.Messages, err)
		}
	}
	return result.withoutSpecIfDenied()
}

// sentinels are the last policies to be made: when they decide, so do all before them.
const sentinels = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: sentinel}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    objectSelector: {matchLabels: {parity.metio.wtf/case: sentinel}}
    resourceRules: [{apiGroups: [stages.metio.wtf], apiVersions: [v1], operations: [CREATE], resources: [stagesets]}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'mutated': 'true'}}}"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: sentinel}
spec: {policyName: sentinel}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: sentinel}
spec:
  failurePolicy: Fail
  matchConstraints:
    objectSelector: {matchLabels: {parity.metio.wtf/case: sentinel}}
    resourceRules: [{apiGroups: [stages.metio.wtf], apiVersions: [v1], operations: [CREATE], resources: [stagesets]}]
  validations: [{expression: "!has(object.metadata.labels.mutated)", message: both are active}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: sentinel}
spec: {policyName: sentinel, validationActions: [Deny]}
`

// awaitPolicies waits until the API server evaluates all policies that have been made.
func awaitPolicies(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	c.Apply(t, sentinels)
	writer := c.Client(t)
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "stages.metio.wtf/v1", "kind": "StageSet",
		"metadata": map[string]any{
			"name": "sentinel", "namespace": "default", "labels": map[string]any{label: "sentinel"},
		},
		"spec": map[string]any{},
	}}
	var last error
	active := func(ctx context.Context) (bool, error) {
		last = writer.Create(ctx, object.DeepCopy(), client.DryRunAll)
		return last != nil && strings.Contains(last.Error(), "both are active"), nil
	}
	if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, active); err != nil {
		t.Fatalf("policies are not evaluated: %v; the last answer is %v", err, last)
	}
}
