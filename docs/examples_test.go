package docs_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/e2e/examples"
	"github.com/stageset/stageset/stagesetctl/app"
)

// yamlBlock is a block of YAML in a document; the first group is its text.
var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// policyExamples are the examples of policies.md: all of its blocks, each of which is a file or commands.
func policyExamples(t *testing.T) examples.Document {
	t.Helper()
	document, err := examples.Parse(read(t, "policies.md"))
	if err != nil {
		t.Fatal("policies.md: ", err)
	}
	return document
}

// Whatever policies.md says that stagesetctl prints without a cluster, it prints. The other commands are run in
// e2e/admission, which runs all of them.
func TestPolicyCommands(t *testing.T) {
	document := policyExamples(t)
	t.Chdir(t.TempDir())
	if err := document.Write("."); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, command := range document.Commands {
		arguments, ok := offline(command.Text)
		if !ok {
			continue
		}
		found++
		var output bytes.Buffer
		app.Main(t.Context(), arguments, app.Streams{In: strings.NewReader(""), Out: &output, Err: &output})
		if diff := cmp.Diff(examples.Visible(command.Prints), examples.Visible(output.String())); diff != "" {
			t.Errorf("policies.md:%d: %s (-document +printed):\n%s", command.Line, command.Text, diff)
		}
	}
	if found < 10 {
		t.Errorf("%d commands need no cluster", found)
	}
}

// offline are the arguments of a command that is just stagesetctl, and needs no cluster.
func offline(command string) ([]string, bool) {
	arguments, ok := strings.CutPrefix(strings.ReplaceAll(command, "\\\n", ""), "stagesetctl ")
	if !ok || strings.ContainsAny(arguments, "|'\"") {
		return nil, false
	}
	asksCluster := (strings.HasPrefix(arguments, "policy list") || strings.HasPrefix(arguments, "policy show")) &&
		!strings.Contains(arguments, "--builtin")
	return strings.Fields(arguments), !asksCluster
}

// Every policy in policies.md has tests of both outcomes, or of what it fills in, and nothing is wrong with it.
func TestPolicyExamples(t *testing.T) {
	document := policyExamples(t)
	t.Chdir(t.TempDir())
	if err := document.Write("."); err != nil {
		t.Fatal(err)
	}
	found := 0
	for name, text := range document.Files {
		if !strings.Contains(text, "kind: "+v1alpha1.KindStageSetPolicy) {
			continue
		}
		found++
		var policy v1alpha1.StageSetPolicy
		if err := yaml.UnmarshalStrict([]byte(text), &policy); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var output bytes.Buffer
		code := app.Main(t.Context(), []string{"policy", "check", name}, app.Streams{Out: &output, Err: &output})
		if code != app.ExitOK {
			t.Errorf("%s", &output)
		}
		outcomes := map[v1alpha1.Expectation]bool{}
		for _, test := range policy.Spec.Tests {
			outcomes[test.Expect] = true
		}
		if !outcomes[v1alpha1.ExpectAllow] || len(policy.Spec.Validations) > 0 && !outcomes[v1alpha1.ExpectDeny] {
			t.Errorf("%s: its tests only expect %v", name, outcomes)
		}
	}
	if found == 0 {
		t.Error("policies.md has no policies")
	}
}
