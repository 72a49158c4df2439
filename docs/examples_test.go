package docs_test

import (
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/policytest"
)

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// Every policy in policies.md can be applied as it is, and its tests pass: one that refuses has tests of both outcomes.
func TestPolicyExamples(t *testing.T) {
	found := 0
	for _, block := range yamlBlock.FindAllStringSubmatch(read(t, "policies.md"), -1) {
		if !strings.Contains(block[1], "kind: "+v1alpha1.KindStageSetPolicy) {
			continue
		}
		found++
		var policy v1alpha1.StageSetPolicy
		if err := yaml.UnmarshalStrict([]byte(block[1]), &policy); err != nil {
			t.Errorf("%v in:\n%s", err, block[1])
			continue
		}
		t.Run(policy.Name, func(t *testing.T) {
			warnings, err := policies.Check(t.Context(), &policy, policies.CheckOptions{})
			if err != nil || len(warnings) > 0 {
				t.Fatalf("%v %v", err, warnings)
			}
			results, err := policytest.Run(t.Context(), &policy)
			if err != nil {
				t.Fatal(err)
			}
			for _, result := range results {
				if !result.Passed() {
					t.Errorf("%s: %s", result.Test, strings.Join(result.Failures, "\n"))
				}
			}
			outcomes := map[v1alpha1.Expectation]bool{}
			for _, test := range policy.Spec.Tests {
				outcomes[test.Expect] = true
			}
			if !outcomes[v1alpha1.ExpectAllow] || len(policy.Spec.Validations) > 0 && !outcomes[v1alpha1.ExpectDeny] {
				t.Errorf("its tests only expect %v", outcomes)
			}
		})
	}
	if found == 0 {
		t.Error("policies.md has no examples")
	}
}
