package builtin

import "github.com/stageset/stageset/policies"

// The policies that have parameters of the config.
const (
	defaultServiceAccount = "default-service-account"
	accountRequired       = "service-account-required"
	authorMayUseAccount   = "author-may-use-service-account"
	noCrossNamespaceRefs  = "no-cross-namespace-refs"
	reservedNamespaces    = "reserved-namespaces"
)

// Params is the value of the variable params for those built-in policies that read it, by their names: what config says, in
// place of an object of a cluster. Whoever evaluates or exports a built-in policy without Compile has to give it this value;
// it is what policies.Options.Params takes, and each value is what policies.ExportOptions.Params takes. No value is null.
func Params(config policies.Config) map[string]map[string]any {
	return map[string]map[string]any{
		defaultServiceAccount: {
			"defaultServiceAccount": config.DefaultServiceAccount,
			"trustNamespaceKeys":    config.TrustNamespaceKeys,
		},
		accountRequired:      {"controllerIdentity": list(config.AllowControllerIdentity)},
		authorMayUseAccount:  {"trustedRequesters": list(config.TrustedRequesters)},
		noCrossNamespaceRefs: {"everywhere": config.NoCrossNamespaceRefs},
		reservedNamespaces:   {"reservedNamespaces": list(config.ReservedNamespaces)},
	}
}

// list is names as expressions see it: never null.
func list(names []string) []any {
	all := make([]any, 0, len(names))
	for _, name := range names {
		all = append(all, name)
	}
	return all
}
