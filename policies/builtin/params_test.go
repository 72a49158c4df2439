package builtin_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/builtin"
)

// TestParams: every built-in policy that reads params has a value for them, and exported with it carries what is configured.
func TestParams(t *testing.T) {
	config := policies.Config{
		DefaultServiceAccount: "the-account", TrustedRequesters: []string{"the-requester"},
		ReservedNamespaces: []string{"the-namespace"},
	}
	configured := map[string]string{
		"default-service-account": "the-account", "author-may-use-service-account": "the-requester",
	}
	params := builtin.Params(config)
	var exported []string
	for _, policy := range load(t) {
		if policy.Spec.Target == v1alpha1.TargetManifest || policy.Spec.Target == v1alpha1.TargetSource {
			continue // which cannot be exported
		}
		result, err := policies.Export(&policy, policies.ExportOptions{Params: params[policy.Name]})
		if err != nil {
			t.Errorf("%s: %v", policy.Name, err)
			continue
		}
		text, err := json.Marshal(result)
		if err != nil {
			t.Fatal(err)
		}
		if want, ok := configured[policy.Name]; ok {
			exported = append(exported, policy.Name)
			if !strings.Contains(string(text), want) {
				t.Errorf("%s does not carry %s", policy.Name, want)
			}
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(configured)), exported); diff != "" {
		t.Errorf("exported with params (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]any{"the-namespace"}, params["reserved-namespaces"]["reservedNamespaces"]); diff != "" {
		t.Errorf("reserved namespaces (-want +got):\n%s", diff)
	}
}

// TestConfigured: what is off is not there, and the others have the action that the config says.
func TestConfigured(t *testing.T) {
	all, err := builtin.Configured(policies.Config{Rules: map[string]policies.Switch{
		"no-self-dependency": policies.SwitchOff, "verified-source": policies.SwitchWarn,
	}})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]v1alpha1.ValidationAction{}
	for _, policy := range all {
		got[policy.Name] = policy.Spec.ValidationActions
	}
	if _, ok := got["no-self-dependency"]; ok {
		t.Error("what is off is there")
	}
	if diff := cmp.Diff([]v1alpha1.ValidationAction{v1alpha1.ValidationActionWarn}, got["verified-source"]); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
	if want := len(load(t)) - 1; len(got) != want {
		t.Errorf("%d policies, want %d", len(got), want)
	}
}
