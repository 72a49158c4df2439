package policies

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/api/v1alpha1"
)

// Switch is how a built-in rule is set in the policy config.
type Switch string

// The settings of a rule. A rule that fills in defaults is On or Off, a rule that refuses is Deny, Warn, Audit or Off.
const (
	SwitchDeny  Switch = "Deny"
	SwitchWarn  Switch = "Warn"
	SwitchAudit Switch = "Audit"
	SwitchOn    Switch = "On"
	SwitchOff   Switch = "Off"
)

// UnmarshalJSON implements json.Unmarshaler. On and off without quotes are booleans in YAML.
func (s *Switch) UnmarshalJSON(text []byte) error {
	switch name := strings.Trim(string(text), `"`); name {
	case "true":
		*s = SwitchOn
	case "false":
		*s = SwitchOff
	case string(SwitchDeny), string(SwitchWarn), string(SwitchAudit), string(SwitchOn), string(SwitchOff):
		*s = Switch(name)
	default:
		return fmt.Errorf("a rule is Deny, Warn, Audit, On or Off, not %s", name)
	}
	return nil
}

// Config is the policy config (--policy-config): one file for all binaries, so that they cannot disagree. Its zero value is
// the default: every namespace is a tenant's, every built-in rule is as its policy says.
type Config struct {
	// PlatformNamespaces lists the namespaces that are not tenants', by name; AllNamespaces alone is all of them. Unset is the
	// one that the product runs in (see Within), and an empty list is none.
	PlatformNamespaces []string `json:"platformNamespaces,omitempty"`
	// Rules switches built-in rules, by name.
	Rules map[string]Switch `json:"rules,omitempty"`
	// DefaultServiceAccount is filled in by the built-in default-service-account where a StageSet names no account.
	DefaultServiceAccount string `json:"defaultServiceAccount,omitempty"`
	// AllowControllerIdentity lists the namespaces, or AllNamespaces, in which a StageSet may name no account: it is applied
	// with the reconciler's own then. Everywhere else that is refused, also for what was applied so before.
	AllowControllerIdentity []string `json:"allowControllerIdentity,omitempty"`
	// TrustNamespaceKeys lets the keys of this product on a Namespace count: the label stages.metio.wtf/tenancy, and the
	// annotation stages.metio.wtf/default-service-account. It is for clusters where tenants cannot write them.
	TrustNamespaceKeys bool `json:"trustNamespaceKeys,omitempty"`
	// NoCrossNamespaceRefs confines the StageSets of all namespaces to their own, and not only those of tenants: the built-in
	// no-cross-namespace-refs is about all of them then.
	NoCrossNamespaceRefs bool `json:"noCrossNamespaceRefs,omitempty"`
	// ParamResources are the kinds that policies can have as parameters, never Secret; unset is DefaultParamResources.
	ParamResources []v1alpha1.ParamKind `json:"paramResources,omitempty"`
	// ReservedNamespaces are where tenants cannot apply anything, besides kube-system, kube-public, kube-node-lease and the
	// namespace that the product runs in (see Within).
	ReservedNamespaces []string `json:"reservedNamespaces,omitempty"`
	// TrustedRequesters are names of users who the built-in author-may-use-service-account does not ask about: those that apply
	// StageSets for others, such as a GitOps controller.
	TrustedRequesters []string `json:"trustedRequesters,omitempty"`
}

// LoadConfig reads the policy config from the YAML file path; an empty path is the default. An unknown or repeated key is an
// error, and so is a name that cannot be one. Whether a rule exists is known to package builtin.
func LoadConfig(path string) (Config, error) {
	if path == "" {
		return Config{}, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("reading the policy config: %w", err)
	}
	var config Config
	if err := yaml.UnmarshalStrict(text, &config); err != nil {
		return Config{}, fmt.Errorf("policy config %s: %w", path, err)
	}
	if err := config.Validate(); err != nil {
		return Config{}, fmt.Errorf("policy config %s: %w", path, err)
	}
	return config, nil
}

// Within is c of an installation that runs in namespace: no tenant can apply anything there, and unless the config says which
// the platform namespaces are, it is the one. Nothing changes if namespace is empty, which means that it is not known.
func (c Config) Within(namespace string) Config {
	if namespace == "" {
		return c
	}
	if c.PlatformNamespaces == nil {
		c.PlatformNamespaces = []string{namespace}
	}
	if !slices.Contains(c.ReservedNamespaces, namespace) {
		c.ReservedNamespaces = append(slices.Clip(c.ReservedNamespaces), namespace)
	}
	return c
}

// ControllerIdentity tells whether a StageSet in namespace that names no account is applied with the reconciler's own.
func (c Config) ControllerIdentity(namespace string) bool {
	return slices.Contains(c.AllowControllerIdentity, AllNamespaces) ||
		slices.Contains(c.AllowControllerIdentity, namespace)
}

// Validate names every key whose value cannot be used.
func (c Config) Validate() error {
	var invalid []error
	for i, namespace := range c.PlatformNamespaces {
		if namespace == AllNamespaces && len(c.PlatformNamespaces) == 1 {
			continue
		}
		if wrong := validation.IsDNS1123Label(namespace); len(wrong) > 0 {
			invalid = append(invalid, fmt.Errorf("platformNamespaces[%d]: %q: %s", i, namespace, strings.Join(wrong, "; ")))
		}
	}
	for i, namespace := range c.AllowControllerIdentity {
		if wrong := validation.IsDNS1123Label(namespace); namespace != AllNamespaces && len(wrong) > 0 {
			invalid = append(invalid, fmt.Errorf("allowControllerIdentity[%d]: %q: %s", i, namespace, strings.Join(wrong, "; ")))
		}
	}
	for i, namespace := range c.ReservedNamespaces {
		if wrong := validation.IsDNS1123Label(namespace); len(wrong) > 0 {
			invalid = append(invalid, fmt.Errorf("reservedNamespaces[%d]: %q: %s", i, namespace, strings.Join(wrong, "; ")))
		}
	}
	if c.DefaultServiceAccount != "" {
		if wrong := validation.IsDNS1123Subdomain(c.DefaultServiceAccount); len(wrong) > 0 {
			invalid = append(invalid, fmt.Errorf("defaultServiceAccount: %q: %s", c.DefaultServiceAccount, strings.Join(wrong, "; ")))
		}
	}
	for i, kind := range c.ParamResources {
		if kind.APIVersion == "" || kind.Kind == "" {
			invalid = append(invalid, fmt.Errorf("paramResources[%d]: apiVersion and kind are set together", i))
			continue
		}
		if err := allows(&kind, c.ParamResources); err != nil {
			invalid = append(invalid, fmt.Errorf("paramResources[%d]: %w", i, err))
		}
	}
	for i, user := range c.TrustedRequesters {
		if strings.TrimSpace(user) == "" {
			invalid = append(invalid, fmt.Errorf("trustedRequesters[%d]: is empty", i))
		}
	}
	return errors.Join(invalid...)
}
