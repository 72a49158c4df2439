package permissions

import (
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// Rules are what an API server says that an account may do in a namespace, what it may do in all namespaces included.
type Rules struct {
	// Resources are the rules about objects.
	Resources []authorizationv1.ResourceRule
	// Incomplete is true when the account may have permissions beside those: not every authorizer can list its own.
	Incomplete bool
	// Remembered is true for an answer that was not asked for just now.
	Remembered bool
}

// Allows is true when one of the rules gives the permission, as RBAC reads them.
func (r Rules) Allows(p Permission) bool {
	return slices.ContainsFunc(r.Resources, func(rule authorizationv1.ResourceRule) bool {
		return has(rule.Verbs, p.Verb) && has(rule.APIGroups, p.Group) && has(rule.Resources, p.Resource) &&
			(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, p.Name))
	})
}

// has is true when a value, or *, is among the values of a rule.
func has(values []string, wanted string) bool {
	return slices.Contains(values, wanted) || slices.Contains(values, "*")
}
