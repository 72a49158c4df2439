package policies_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

func TestLoadConfig(t *testing.T) {
	for name, test := range map[string]struct {
		text    string
		want    policies.Config
		wantErr string
	}{
		"empty": {},
		"everything": {
			text: `
platformNamespaces: [stageset-system, flux-system]
rules:
  no-cross-namespace-refs: Warn
  no-self-dependency: Audit
  service-account-required: Deny
  default-service-account: On
  kubeconfig-one-reference: "Off"
defaultServiceAccount: deployer
trustNamespaceKeys: true
`,
			want: policies.Config{
				PlatformNamespaces: []string{"stageset-system", "flux-system"},
				Rules: map[string]policies.Switch{
					"no-cross-namespace-refs":  policies.SwitchWarn,
					"no-self-dependency":       policies.SwitchAudit,
					"service-account-required": policies.SwitchDeny,
					"default-service-account":  policies.SwitchOn,
					"kubeconfig-one-reference": policies.SwitchOff,
				},
				DefaultServiceAccount: "deployer",
				TrustNamespaceKeys:    true,
			},
		},
		"on and off are booleans in YAML": {
			text: "rules: {a: on, b: off, c: Off, d: true, e: false}",
			want: policies.Config{Rules: map[string]policies.Switch{
				"a": policies.SwitchOn, "b": policies.SwitchOff, "c": policies.SwitchOff,
				"d": policies.SwitchOn, "e": policies.SwitchOff,
			}},
		},
		"a single tenant": {text: "platformNamespaces: ['*']", want: policies.Config{PlatformNamespaces: []string{"*"}}},
		"an unknown key":  {text: "platformNamespace: [a]", wantErr: `unknown field "platformNamespace"`},
		"a key that is twice": {
			text: "trustNamespaceKeys: true\ntrustNamespaceKeys: false", wantErr: `"trustNamespaceKeys" already set`,
		},
		"a setting that is none": {
			text: "rules: {no-self-dependency: Enforce}", wantErr: `a rule is Deny, Warn, Audit, On or Off, not Enforce`,
		},
		"a setting that is a number": {
			text: "rules: {no-self-dependency: 1}", wantErr: "a rule is Deny, Warn, Audit, On or Off, not 1",
		},
		"a namespace that cannot be one": {
			text: "platformNamespaces: [a, Team_A]", wantErr: `platformNamespaces[1]: "Team_A": a lowercase RFC 1123 label`,
		},
		"all namespaces, and one": {
			text: "platformNamespaces: [a, '*']", wantErr: `platformNamespaces[1]: "*": a lowercase RFC 1123 label`,
		},
		"an account that cannot be one": {
			text: "defaultServiceAccount: system:admin", wantErr: `defaultServiceAccount: "system:admin": a lowercase RFC 1123`,
		},
		"parameters": {
			text: "paramResources: [{apiVersion: v1, kind: ConfigMap}, {apiVersion: example.com/v1, kind: Limit}]",
			want: policies.Config{ParamResources: []v1alpha1.ParamKind{
				{APIVersion: "v1", Kind: "ConfigMap"}, {APIVersion: "example.com/v1", Kind: "Limit"},
			}},
		},
		"no parameters": {
			text: "paramResources: []", want: policies.Config{ParamResources: []v1alpha1.ParamKind{}},
		},
		"parameters that are never any": {
			text:    "paramResources: [{apiVersion: v1, kind: ConfigMap}, {apiVersion: v1, kind: Secret}]",
			wantErr: "paramResources[1]: is Secret, which is never a parameter: every message could show it",
		},
		"parameters that are the same by another name": {
			text:    "paramResources: [{apiVersion: /v1, kind: Secret}]",
			wantErr: "paramResources[0]: is Secret, which is never a parameter",
		},
		"parameters of no kind": {
			text: "paramResources: [{apiVersion: v1}]", wantErr: "paramResources[0]: apiVersion and kind are set together",
		},
		"no YAML": {text: "rules: [", wantErr: "did not find expected node content"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "policy.yaml")
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := policies.LoadConfig(path)
			if test.wantErr == "" && err != nil {
				t.Fatal(err)
			}
			if test.wantErr != "" && (err == nil || !strings.Contains(err.Error(), test.wantErr) ||
				!strings.Contains(err.Error(), "policy config "+path)) {
				t.Errorf("the error is %v, want %s", err, test.wantErr)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("config (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLoadConfigWithoutFile(t *testing.T) {
	if got, err := policies.LoadConfig(""); err != nil || !cmp.Equal(got, policies.Config{}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := policies.LoadConfig(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that does not exist is no error")
	}
}

// TestConfigWithin: where the product itself runs is the platform, unless the config says what is, and reserved in any case.
func TestConfigWithin(t *testing.T) {
	for name, test := range map[string]struct{ config, want policies.Config }{
		"the default": {policies.Config{}, policies.Config{
			PlatformNamespaces: []string{"own"}, ReservedNamespaces: []string{"own"},
		}},
		"another platform": {
			policies.Config{PlatformNamespaces: []string{"ops"}, ReservedNamespaces: []string{"ops"}},
			policies.Config{PlatformNamespaces: []string{"ops"}, ReservedNamespaces: []string{"ops", "own"}},
		},
		"no platform": {
			policies.Config{PlatformNamespaces: []string{}, ReservedNamespaces: []string{"own"}},
			policies.Config{PlatformNamespaces: []string{}, ReservedNamespaces: []string{"own"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.config.Within("own")); diff != "" {
				t.Errorf("config (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.config, test.config.Within("")); diff != "" {
				t.Errorf("config of who knows no namespace (-want +got):\n%s", diff)
			}
		})
	}
}
