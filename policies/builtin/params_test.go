package builtin_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/builtin"
)

// TestParams: params have what is configured, and so have the policies that are exported with them.
func TestParams(t *testing.T) {
	config := policies.Config{
		DefaultServiceAccount: "the-account", TrustedRequesters: []string{"the-requester"},
		ReservedNamespaces: []string{"the-namespace"}, NoCrossNamespaceRefs: true,
		AllowControllerIdentity: []string{"*"},
	}
	params := builtin.Params(config)
	for name, want := range map[string]map[string]any{
		"author-may-use-service-account": {"trustedRequesters": []any{"the-requester"}},
		"reserved-namespaces":            {"reservedNamespaces": []any{"the-namespace"}},
		"service-account-required":       {"controllerIdentity": []any{"*"}},
	} {
		if diff := cmp.Diff(want, params[name]); diff != "" {
			t.Errorf("params of %s (-want +got):\n%s", name, diff)
		}
	}
	for name, want := range map[string]string{
		"default-service-account": "the-account", "no-cross-namespace-refs": `{\"everywhere\": dyn(true)}`, "no-self-dependency": "",
	} {
		result, err := policies.Export(named(t, name), policies.ExportOptions{Params: params[name]})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text, err := json.Marshal(result)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("%s does not carry %s: %s", name, want, text)
		}
	}
}

// TestNoParamsAreMissing: whatever built-in policy reads params has a value for them.
func TestNoParamsAreMissing(t *testing.T) {
	params := builtin.Params(policies.Config{})
	for _, policy := range load(t) {
		text, err := json.Marshal(policy.Spec)
		if err != nil {
			t.Fatal(err)
		}
		if reads := strings.Contains(string(text), "params."); reads != (params[policy.Name] != nil) {
			t.Errorf("%s reads params: %t, and has %v", policy.Name, reads, params[policy.Name])
		}
	}
}

func named(t *testing.T, name string) *v1alpha1.StageSetPolicy {
	t.Helper()
	list := load(t)
	i := slices.IndexFunc(list, func(p v1alpha1.StageSetPolicy) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("there is no policy %s", name)
	}
	return &list[i]
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

// TestOwnNamespace: without any config, nothing of a tenant goes to where the product runs, which is no tenant's.
func TestOwnNamespace(t *testing.T) {
	set, err := builtin.Compile(t.Context(), policies.Config{}.Within("own"))
	if err != nil {
		t.Fatal(err)
	}
	for stored, denied := range map[string]bool{"tenant": true, "own": false} {
		in := policies.ManifestInput{SourceInput: policies.SourceInput{StageSet: object(stored, "app"), Stage: "web"}}
		in.Object = object("own", "a")
		in.Object.SetAPIVersion("v1")
		in.Object.SetKind("ConfigMap")
		if got := set.ValidateManifest(t.Context(), in).Denied; (len(got) > 0) != denied {
			t.Errorf("of a StageSet in %s: %v", stored, got)
		}
	}
}

// object is an object of a namespace.
func object(namespace, name string) *unstructured.Unstructured {
	made := &unstructured.Unstructured{Object: map[string]any{}}
	made.SetNamespace(namespace)
	made.SetName(name)
	return made
}
