// Package parity_test holds what stagesetctl says against the API server: the same cases are decided by its own evaluator of
// ValidatingAdmissionPolicies, on what stagesetctl exports, and by ours. It imports nothing of the product's inside, and
// never starts a webhook.
package parity_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/api/crds"
	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/e2e/cluster"
)

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

// notExported are the policies that cannot be exported, and what stagesetctl says why. Those about sources and manifests have
// nothing to be compared with: what they decide about never passes the API server before it is decided, and their variables
// are not there.
var notExported = map[string]string{
	"no-privilege-escalation-manifests": "is Manifest",
	"reserved-namespaces":               "is Manifest",
	"reserved-namespace-keys":           "is Manifest",
	"verified-source":                   "is Source",
	"allowed-kinds":                     "is Manifest",
	"allowed-registries":                "is Manifest",
	"allowed-source-urls":               "is Source",
	"allowed-target-clusters":           "is Manifest",
	"no-host-access":                    "is Manifest",
	"no-latest-tag":                     "is Manifest",
	"resource-requests":                 "is Manifest",
	"signed-sources-in-production":      "is Source",
	"required-labels":                   "spec.enforceOn: is Changes",
	"stage-quota":                       "spec.enforceOn: is Changes",
}

// withoutLoops are policies that can only be exported with other variables in place of some, and those: one that asks the
// authorizer for each account costs the API server too much, two that ask for the first account and for the second do not. No
// case has more. What is compared with that is the policy as it is, but for messageExpression, which must not lead to the
// authorizer there.
var withoutLoops = map[string]map[string][]v1alpha1.Variable{
	"author-may-use-service-account": {"forbidden": {
		{Name: "mayFirst", Expression: "variables.accounts.size() < 1 || " + mayUse("variables.accounts[0]")},
		{Name: "maySecond", Expression: "variables.accounts.size() < 2 || " + mayUse("variables.accounts[1]")},
		{Name: "forbidden", Expression: "(variables.mayFirst ? [] : [variables.accounts[0]]) + " +
			"(variables.maySecond ? [] : [variables.accounts[1]])"},
	}},
}

// mayUse is an expression that asks whether the requester may use an account.
func mayUse(account string) string {
	const accounts = "authorizer.group('').resource('serviceaccounts')"
	const named = ".namespace(request.namespace).name(%s).check('%s').allowed()"
	return fmt.Sprintf("("+accounts+named+" || "+accounts+".subresource('token')"+named+")", account, "impersonate", account, "create")
}

// differs are the cases that are decided in another way, and why.
var differs = map[string]string{
	"freeze/a label during a freeze": "what was refused before may get labels from the webhook alone",
}

// TestPolicies: the policies that are built in, those of the library, and some that have what neither has, exported, say the
// same of all their cases. Each of them is either compared or cannot be exported.
func TestPolicies(t *testing.T) {
	c := cluster.Shared(t)
	program := build(t)
	c.InstallCRDs(t, crds.FS)
	c.Apply(t, everybody)
	policies := slices.Concat(
		builtIn(t, program), read(t, "../../policies/library/*.yaml"), read(t, "testdata/policies/*.yaml"))
	unexported := maps.Clone(notExported)
	var all []*comparison
	for _, policy := range policies {
		if reason, ok := unexported[policy.Name]; ok {
			delete(unexported, policy.Name)
			path := filepath.Join(t.TempDir(), "policy.yaml")
			write(t, path, marshal(t, policy))
			if _, stderr := stagesetctl(t, program, "policy", "export", path); !strings.Contains(stderr, reason) {
				t.Errorf("exporting %s, stagesetctl does not say %q but %q", policy.Name, reason, stderr)
			}
			continue
		}
		compared := prepare(t, c, program, policy)
		if len(compared) == 0 {
			t.Errorf("no case of %s is compared", policy.Name)
		}
		all = append(all, compared...)
	}
	for name := range unexported {
		t.Errorf("there is no policy %s", name)
	}
	awaitPolicies(t, c)
	for _, one := range all {
		t.Run(one.name, func(t *testing.T) {
			ours, native := one.ours(t), one.native(t, c)
			diff := cmp.Diff(ours, native)
			if why := differs[one.name]; why != "" {
				if diff == "" {
					t.Errorf("verdicts are the same, but are expected to differ: %s", why)
				}
				return
			}
			if diff != "" {
				t.Errorf("verdicts (-ours +native):\n%s", diff)
			}
			if ours.Denied != one.denied {
				t.Errorf("denied is %t, and its test expects another verdict", ours.Denied)
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

// stagesetctl is what a command prints. That something is wrong with policies or objects is no failure of the test.
func stagesetctl(t *testing.T, program string, arguments ...string) (stdout []byte, stderr string) {
	t.Helper()
	var problems bytes.Buffer
	command := exec.CommandContext(t.Context(), program, arguments...)
	command.Stderr = &problems
	output, err := command.Output()
	if command.ProcessState == nil || command.ProcessState.ExitCode() > 1 {
		t.Fatalf("stagesetctl %v: %v\n%s", arguments, err, problems.String())
	}
	return output, problems.String()
}

// builtIn are the built-in policies.
func builtIn(t *testing.T, program string) []v1alpha1.StageSetPolicy {
	t.Helper()
	output, _ := stagesetctl(t, program, "policy", "list", "--builtin", "--output", "yaml")
	var list v1alpha1.StageSetPolicyList
	if err := yaml.Unmarshal(output, &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// read are the policies in files.
func read(t *testing.T, pattern string) []v1alpha1.StageSetPolicy {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("there are no files %s: %v", pattern, err)
	}
	list := make([]v1alpha1.StageSetPolicy, len(paths))
	for i, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(content, &list[i]); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func marshal(t *testing.T, value any) string {
	t.Helper()
	content, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
