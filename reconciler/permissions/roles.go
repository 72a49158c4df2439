package permissions

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// PolicyRules are the fewest rules that give the permissions, which are all of one namespace: one for each set of verbs,
// names and group. What is allowed for all objects of a resource is not repeated for one of them.
func PolicyRules(all Permissions) []rbacv1.PolicyRule {
	merged := all.withoutCovered().merged()
	var rules []rbacv1.PolicyRule
	for _, key := range sorted(merged) {
		names := slices.DeleteFunc(merged[key], func(name string) bool { return name == "" })
		next := rbacv1.PolicyRule{
			APIGroups: []string{key.group}, Resources: []string{key.resource}, ResourceNames: names,
			Verbs: strings.Split(key.verbs, ", "),
		}
		at := slices.IndexFunc(rules, func(rule rbacv1.PolicyRule) bool {
			return slices.Equal(rule.APIGroups, next.APIGroups) && slices.Equal(rule.Verbs, next.Verbs) &&
				slices.Equal(rule.ResourceNames, next.ResourceNames)
		})
		if at < 0 {
			rules = append(rules, next)
			continue
		}
		rules[at].Resources = append(rules[at].Resources, key.resource)
	}
	return rules
}

// withoutCovered leaves out what another of the permissions includes.
func (l Permissions) withoutCovered() Permissions {
	all := map[Permission]bool{}
	for _, p := range l {
		if p.Name == "" {
			all[p] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(l), func(p Permission) bool { return p.Name != "" && all[p.unnamed()] })
}

// Given are the permissions that rules give in a namespace; an empty one is the whole cluster. What rules say of paths
// (nonResourceURLs) is no permission about objects, and left out.
func Given(rules []rbacv1.PolicyRule, namespace string) Permissions {
	var given Permissions
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					object := Permission{Group: group, Resource: resource, Namespace: namespace, Name: name}
					given = append(given, Of(object, rule.Verbs...)...)
				}
			}
		}
	}
	return given
}
