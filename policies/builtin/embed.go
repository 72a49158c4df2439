// Package builtin holds the rules that the product ships with, as StageSetPolicies with their own tests, and applies the
// policy config to them. It never evaluates anything itself, and has no rule that an admin could not have written.
package builtin

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

// off are the policies that are off unless the config switches them.
var off = map[string]bool{"verified-source": true}

//go:embed *.yaml
var files embed.FS

var parsed = sync.OnceValues(func() ([]v1alpha1.StageSetPolicy, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	list := make([]v1alpha1.StageSetPolicy, len(entries))
	for i, entry := range entries {
		text, err := files.ReadFile(entry.Name())
		if err != nil {
			return nil, err
		}
		if err := yaml.UnmarshalStrict(text, &list[i]); err != nil {
			return nil, fmt.Errorf("built-in policy %s: %w", entry.Name(), err)
		}
	}
	slices.SortFunc(list, func(a, b v1alpha1.StageSetPolicy) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
})

// Policies are the built-in policies, sorted by name, as they are when no config changes them.
func Policies() ([]v1alpha1.StageSetPolicy, error) {
	list, err := parsed()
	if err != nil {
		return nil, err
	}
	copies := make([]v1alpha1.StageSetPolicy, len(list))
	for i := range list {
		list[i].DeepCopyInto(&copies[i])
	}
	return copies, nil
}

// Configured are the built-in policies as config sets them: without those that are off, with the actions of the others. The
// error is as for Compile. Their params are not part of them; see Params.
func Configured(config policies.Config) ([]v1alpha1.StageSetPolicy, error) {
	all, err := Policies()
	if err != nil {
		return nil, err
	}
	enabled, err := configure(all, config)
	if err != nil {
		return nil, fmt.Errorf("policy config: %w", err)
	}
	return enabled, nil
}

// Compile compiles the built-in policies as config sets them. It is an error if config names a rule that does not exist, or
// sets one to what it cannot be.
func Compile(ctx context.Context, config policies.Config) (*policies.Set, error) {
	enabled, err := Configured(config)
	if err != nil {
		return nil, err
	}
	enabled = slices.DeleteFunc(enabled, func(p v1alpha1.StageSetPolicy) bool { return idle(p.Name, config) })
	return policies.Compile(ctx, enabled, policies.Options{
		PlatformNamespaces: config.PlatformNamespaces,
		TrustNamespaceKeys: config.TrustNamespaceKeys,
		ParamResources:     config.ParamResources,
		BuiltIn:            true,
		Params:             Params(config),
	})
}

// CheckOptions are what is needed to check policies that are stored beside the built-in ones.
func CheckOptions(config policies.Config) (policies.CheckOptions, error) {
	all, err := Policies()
	if err != nil {
		return policies.CheckOptions{}, err
	}
	options := policies.CheckOptions{ParamResources: config.ParamResources}
	for i := range all {
		options.BuiltIn = append(options.BuiltIn, all[i].Name)
	}
	return options, nil
}

// configure is list as the switches of config set it.
func configure(list []v1alpha1.StageSetPolicy, config policies.Config) ([]v1alpha1.StageSetPolicy, error) {
	var enabled []v1alpha1.StageSetPolicy
	var invalid []error
	known := map[string]bool{}
	for i := range list {
		known[list[i].Name] = true
		setting, ok := config.Rules[list[i].Name]
		if ok {
			invalid = append(invalid, apply(&list[i], setting))
		}
		if setting != policies.SwitchOff && (ok || !off[list[i].Name]) {
			enabled = append(enabled, list[i])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(config.Rules)) {
		if !known[name] {
			invalid = append(invalid, fmt.Errorf("rules: there is no rule %q; there are %s", name, names(list)))
		}
	}
	if setting, ok := config.Rules[noCrossNamespaceRefs]; config.NoCrossNamespaceRefs && ok && setting != policies.SwitchDeny {
		invalid = append(invalid, fmt.Errorf("noCrossNamespaceRefs: has no effect with rules.%s: %s: it wants Deny",
			noCrossNamespaceRefs, setting))
	}
	return enabled, errors.Join(invalid...)
}

// idle tells that the policy has nothing to do under config. It is then left out, because without any policy that fills in
// defaults the mutating webhook has nothing to read.
func idle(policy string, config policies.Config) bool {
	return policy == defaultServiceAccount && config.DefaultServiceAccount == "" && !config.TrustNamespaceKeys
}

// apply sets the actions of policy.
func apply(policy *v1alpha1.StageSetPolicy, setting policies.Switch) error {
	if setting == policies.SwitchOff {
		return nil
	}
	fillsIn := len(policy.Spec.Validations) == 0
	switch {
	case fillsIn && setting != policies.SwitchOn:
		return fmt.Errorf("rules.%s: it fills in defaults, so it is On or Off, not %s", policy.Name, setting)
	case !fillsIn && setting == policies.SwitchOn:
		return fmt.Errorf("rules.%s: it refuses, so it is Deny, Warn, Audit or Off, not %s", policy.Name, setting)
	case !fillsIn:
		policy.Spec.ValidationActions = []v1alpha1.ValidationAction{v1alpha1.ValidationAction(setting)}
	}
	return nil
}

func names(list []v1alpha1.StageSetPolicy) string {
	all := make([]string, 0, len(list))
	for i := range list {
		all = append(all, list[i].Name)
	}
	return strings.Join(all, ", ")
}
