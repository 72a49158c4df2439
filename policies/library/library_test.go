package library_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/builtin"
	"github.com/stageset/stageset/policies/library"
	"github.com/stageset/stageset/policies/policytest"
)

// TestPolicies: every policy can be stored as it is, passes its own tests, and has some that allow and some that do not.
func TestPolicies(t *testing.T) {
	list, err := library.Policies()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 12 {
		t.Errorf("there are %d policies", len(list))
	}
	options, err := builtin.CheckOptions(policies.Config{})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, policy := range list {
		t.Run(policy.Name, func(t *testing.T) {
			if names[policy.Name] {
				t.Error("there is another one with this name")
			}
			names[policy.Name] = true
			warnings, err := policytest.Check(t.Context(), &policy, options)
			if err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(policies.Problems(nil), warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
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
