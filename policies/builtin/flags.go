package builtin

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/stageset/stageset/policies"
)

// Flags are the flags by which a program is told how the built-in policies are set: the policy config, and flags that take the
// place of some of its keys. Programs of one installation must be given the same.
type Flags struct {
	// PolicyConfig is the path of the policy config; empty is that of none.
	PolicyConfig string
	// NoCrossNamespaceRefs, DefaultServiceAccount and AllowControllerIdentity take the place of the keys of these names where
	// they are not the zero value.
	NoCrossNamespaceRefs    bool
	DefaultServiceAccount   string
	AllowControllerIdentity []string
}

// AddFlags adds the flags to a set.
func (f *Flags) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.PolicyConfig, "policy-config", "",
		"Path of the policy config file. Without it, every built-in rule has its default. Both programs must have the same.")
	flags.BoolVar(&f.NoCrossNamespaceRefs, "no-cross-namespace-refs", false,
		"Confine the StageSets of all namespaces to their own, whatever the policy config says. Both programs must have the same.")
	flags.StringVar(&f.DefaultServiceAccount, "default-service-account", "",
		"Name of the ServiceAccount that a StageSet is applied as which names none, and no kubeConfig. Takes the place of"+
			" defaultServiceAccount in the policy config. Both programs must have the same.")
	flags.StringSliceVar(&f.AllowControllerIdentity, "allow-controller-identity", nil,
		"Namespaces in which a StageSet may name no ServiceAccount and is then applied with the reconciler's own identity; * is"+
			" all of them. Takes the place of allowControllerIdentity in the policy config. Both programs must have the same.")
}

// Validate names every flag whose value cannot be used.
func (f *Flags) Validate() error {
	invalid := func(flag string, config policies.Config) error {
		if err := config.Validate(); err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
		return nil
	}
	return errors.Join(
		invalid("--default-service-account", policies.Config{DefaultServiceAccount: f.DefaultServiceAccount}),
		invalid("--allow-controller-identity", policies.Config{AllowControllerIdentity: f.AllowControllerIdentity}),
	)
}

// Load is the policy config that the flags describe, of an installation that runs in namespace (see policies.Config.Within). An
// error names the flag.
func (f *Flags) Load(namespace string) (policies.Config, error) {
	config, err := policies.LoadConfig(f.PolicyConfig)
	if err != nil {
		return policies.Config{}, fmt.Errorf("--policy-config: %w", err)
	}
	config.NoCrossNamespaceRefs = config.NoCrossNamespaceRefs || f.NoCrossNamespaceRefs
	if f.DefaultServiceAccount != "" {
		config.DefaultServiceAccount = f.DefaultServiceAccount
	}
	if len(f.AllowControllerIdentity) > 0 {
		config.AllowControllerIdentity = f.AllowControllerIdentity
	}
	return config.Within(namespace), nil
}
