package parity_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/e2e/cluster"
)

// label tells which exported policy is for an object: each case has its own.
const label = "parity.metio.wtf/case"

// decided is what is said about an object.
type decided struct {
	Denied bool
	// Messages are all violations, sorted.
	Messages []string
	// Spec is what the object has after defaults and mutations.
	Spec any
}

// withoutSpecIfDenied is d: nobody sees what would have been filled into what is refused.
func (d decided) withoutSpecIfDenied() decided {
	if d.Denied {
		d.Spec = nil
	}
	return d
}

// comparison is one case of a policy: an object that somebody writes.
type comparison struct {
	name, program, dir string
	label              string
	namespace          *unstructured.Unstructured
	object, old        *unstructured.Unstructured // one of them is nil for a deletion, or for a creation
	user               authenticationv1.UserInfo
	permissions        []v1alpha1.Permission
	denied             bool     // as the policy's own test expects
	arguments          []string // for stagesetctl
	exported           []string // the same for what is exported
}

// prepare installs, for each case of a policy, the policy as it is exported for that case, and what the case needs.
func prepare(t *testing.T, c *cluster.Cluster, program string, policy v1alpha1.StageSetPolicy) []*comparison {
	t.Helper()
	var found []*comparison
	for i, test := range policy.Spec.Tests {
		if policy.Spec.ParamRef != nil && test.Params == nil {
			continue // what is written into what is exported is not there
		}
		one := newComparison(t, program, policy, i)
		c.Apply(t, marshal(t, one.namespace.Object))
		if one.old != nil {
			// Before there is the policy, which may have refused it.
			if err := c.Client(t).Create(t.Context(), one.old); err != nil {
				t.Fatal(err)
			}
		}
		c.Apply(t, one.export(t))
		one.grant(t, c)
		found = append(found, one)
	}
	return found
}

func newComparison(t *testing.T, program string, policy v1alpha1.StageSetPolicy, i int) *comparison {
	t.Helper()
	test := policy.Spec.Tests[i].DeepCopy()
	one := &comparison{
		name: policy.Name + "/" + test.Name, program: program, dir: t.TempDir(), label: fmt.Sprintf("%s-%d", policy.Name, i),
		user: authenticationv1.UserInfo{Username: "somebody"}, denied: test.Expect == v1alpha1.ExpectDeny,
	}
	one.inOwnNamespace(t, test)
	one.object, one.old = one.stageSet(t, test.Object), one.stageSet(t, test.OldObject)
	if test.User != nil {
		one.user = *test.User
	}
	one.permissions = test.Permissions
	replace, loops := withoutLoops[policy.Name]
	if loops {
		policy.Spec.Validations = slices.Clone(policy.Spec.Validations)
		for i := range policy.Spec.Validations {
			policy.Spec.Validations[i].MessageExpression = ""
		}
	}
	one.arguments = one.settings(t, policy, test)
	one.exported = slices.Clone(one.arguments)
	if loops {
		one.exported[0] = one.replaced(t, one.arguments[0], replace)
	}
	return one
}

// inOwnNamespace names another namespace in test in place of its own, wherever it is named: users may there what they may in
// no other case, and cases have different Namespaces of one name.
func (c *comparison) inOwnNamespace(t *testing.T, test *v1alpha1.PolicyTest) {
	t.Helper()
	c.namespace = &unstructured.Unstructured{Object: map[string]any{}}
	if test.Namespace != nil {
		c.namespace = decode(t, test.Namespace)
	}
	c.namespace.SetAPIVersion("v1")
	c.namespace.SetKind("Namespace")
	name := c.namespace.GetName()
	for _, raw := range []*runtime.RawExtension{test.Object, test.OldObject} {
		if raw != nil && decode(t, raw).GetNamespace() != "" {
			name = decode(t, raw).GetNamespace()
		}
	}
	if name == "" {
		name = "tenant"
	}
	own := "of-" + c.label
	c.namespace.SetName(own)
	for _, raw := range []*runtime.RawExtension{test.Object, test.OldObject, test.Params} {
		if raw != nil {
			raw.Raw = bytes.ReplaceAll(raw.Raw, []byte(`"`+name+`"`), []byte(`"`+own+`"`))
		}
	}
	for i := range test.Permissions {
		if test.Permissions[i].Namespace == name {
			test.Permissions[i].Namespace = own
		}
	}
}

// stageSet is a StageSet of a case as it is sent; nil if there is none.
func (c *comparison) stageSet(t *testing.T, raw *runtime.RawExtension) *unstructured.Unstructured {
	t.Helper()
	if raw == nil {
		return nil
	}
	object := decode(t, raw)
	object.SetAPIVersion("stages.metio.wtf/v1")
	object.SetKind("StageSet")
	object.SetNamespace(c.namespace.GetName())
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[label] = c.label
	object.SetLabels(labels)
	return object
}

// settings are the arguments of stagesetctl that say what the policy is and what it knows: what is exported has the same.
func (c *comparison) settings(t *testing.T, policy v1alpha1.StageSetPolicy, test *v1alpha1.PolicyTest) []string {
	t.Helper()
	policy.Name, policy.Spec.Tests = c.label, nil
	constraints := &v1alpha1.MatchConstraints{}
	if policy.Spec.MatchConstraints != nil {
		constraints = policy.Spec.MatchConstraints.DeepCopy()
	}
	constraints.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{label: c.label}}
	policy.Spec.MatchConstraints = constraints
	platform := []string{}
	if test.Tenant != nil && !*test.Tenant {
		platform = append(platform, c.namespace.GetName())
	}
	arguments := []string{
		c.file(t, "policy.yaml", marshal(t, policy)),
		"--policy-config", c.file(t, "config.yaml", marshal(t, map[string]any{"platformNamespaces": platform})),
	}
	if test.Params != nil {
		arguments = append(arguments, "--params", c.file(t, "params.yaml", string(test.Params.Raw)))
	}
	return arguments
}

// replaced is the path of the policy in the file path with other variables, by the names of those that they replace.
func (c *comparison) replaced(t *testing.T, path string, replace map[string][]v1alpha1.Variable) string {
	t.Helper()
	policy := read(t, path)[0]
	var variables []v1alpha1.Variable
	for _, variable := range policy.Spec.Variables {
		if others, ok := replace[variable.Name]; ok {
			variables = append(variables, others...)
			continue
		}
		variables = append(variables, variable)
	}
	policy.Spec.Variables = variables
	return c.file(t, "exported.yaml", marshal(t, policy))
}

// file is the path of a new file with content.
func (c *comparison) file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(c.dir, name)
	write(t, path, content)
	return path
}

// export is what stagesetctl makes of the policy. Its binding is there twice, to refuse and to warn: a refusal has only the
// first violation, but there is a warning for each.
func (c *comparison) export(t *testing.T) string {
	t.Helper()
	exported, problems := stagesetctl(t, c.program, append([]string{"policy", "export"}, c.exported...)...)
	if problems != "" {
		t.Fatalf("%s cannot be exported: %s", c.name, problems)
	}
	all := string(exported)
	for document := range strings.SplitSeq(string(exported), "---\n") {
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

// ours is what stagesetctl says of the case.
func (c *comparison) ours(t *testing.T) decided {
	t.Helper()
	arguments := append([]string{"policy", "test"}, c.arguments...)
	arguments = append(arguments, "--output", "json", "--user", c.user.Username,
		"--namespace-object", c.file(t, "namespace.yaml", marshal(t, c.namespace.Object)),
		"--permissions", c.file(t, "permissions.yaml", marshal(t, map[string]any{"permissions": c.permissions})))
	for _, group := range c.user.Groups {
		arguments = append(arguments, "--group", group)
	}
	object, old := c.object, c.old
	if object == nil {
		arguments = append(arguments, "--operation", "DELETE")
		object, old = old, nil
	}
	arguments = append(arguments, "--object", c.file(t, "object.yaml", marshal(t, withoutVersion(object))))
	if old != nil {
		arguments = append(arguments, "--old-object", c.file(t, "old.yaml", marshal(t, withoutVersion(old))))
	}
	var suites []struct {
		Object map[string]any
		Cases  []struct {
			Violations []struct{ Action, Message string }
			Failures   []string
		}
	}
	output, problems := stagesetctl(t, c.program, arguments...)
	if err := json.Unmarshal(output, &suites); err != nil || problems != "" {
		t.Fatalf("%v:\n%s\n%s", err, output, problems)
	}
	result := decided{Spec: suites[0].Object["spec"]}
	for _, one := range suites[0].Cases {
		if len(one.Failures) > 0 && len(one.Violations) == 0 {
			t.Fatalf("stagesetctl does not judge it: %v", one.Failures)
		}
		for _, violation := range one.Violations {
			result.Denied = result.Denied || violation.Action == "Deny"
			result.Messages = append(result.Messages, violation.Message)
		}
	}
	slices.Sort(result.Messages)
	return result.withoutSpecIfDenied()
}

func withoutVersion(object *unstructured.Unstructured) map[string]any {
	object = object.DeepCopy()
	object.SetResourceVersion("")
	return object.Object
}

func decode(t *testing.T, raw *runtime.RawExtension) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw.Raw, &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}
