package builtin_test

import (
	"strings"
	"testing"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/builtin"
	"github.com/stageset/stageset/policies/policytest"
)

// TestCheck: every built-in rule is text that an admin could store, reads only fields that StageSets have (P-08, P-10), and
// has no name twice.
func TestCheck(t *testing.T) {
	for _, policy := range load(t) {
		if _, err := policies.Check(t.Context(), &policy, policies.CheckOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// TestCarriedTests: every built-in rule passes its own tests, of which one at least allows, and one refuses or fills in.
func TestCarriedTests(t *testing.T) {
	for _, policy := range load(t) {
		t.Run(policy.Name, func(t *testing.T) {
			results, err := policytest.Run(t.Context(), &policy)
			if err != nil {
				t.Fatal(err)
			}
			for _, result := range results {
				if !result.Passed() {
					t.Errorf("%s:\n%s", result.Test, strings.Join(result.Failures, "\n"))
				}
			}
			allows, acts := false, false
			for _, test := range policy.Spec.Tests {
				allows = allows || test.Expect == v1alpha1.ExpectAllow
				acts = acts || test.Expect == v1alpha1.ExpectDeny || test.Defaulted != nil
			}
			if !allows || !acts {
				t.Error("has no test that allows, or none that refuses or fills in")
			}
		})
	}
}

func load(t *testing.T) []v1alpha1.StageSetPolicy {
	t.Helper()
	list, err := builtin.Policies()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Fatal("there are no built-in policies")
	}
	return list
}
