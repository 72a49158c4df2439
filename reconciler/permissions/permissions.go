// Package permissions is what RBAC says of a release: what an account needs, whether rules allow it, how a message names
// what is missing, and which rules would grant it. It is pure: it never asks an API server itself, and knows nothing of what
// the release is.
package permissions

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/stageset/stageset/reconciler/failure"
)

// Permission is one thing that an account may do with objects of a resource.
type Permission struct {
	// Verb is get, list, create, patch, delete, bind, or * for all.
	Verb string
	// Group and Resource are as RBAC names them: apps and deployments, with a subresource after a slash.
	Group, Resource string
	// Namespace is where; empty is in the whole cluster, which is also where objects are that have no namespace.
	Namespace string
	// Name is that of one object; empty is all of them.
	Name string
}

// unnamed is the permission for all objects.
func (p Permission) unnamed() Permission {
	p.Name = ""
	return p
}

// Attributes are the permission as an API server is asked about it.
func (p Permission) Attributes() *authorizationv1.ResourceAttributes {
	resource, subresource, _ := strings.Cut(p.Resource, "/")
	return &authorizationv1.ResourceAttributes{
		Verb: p.Verb, Group: p.Group, Resource: resource, Subresource: subresource, Namespace: p.Namespace, Name: p.Name,
	}
}

// Permissions are several.
type Permissions []Permission

// Of are permissions for one object: the verbs that are given, with the rest as in p.
func Of(p Permission, verbs ...string) Permissions {
	all := make(Permissions, 0, len(verbs))
	for _, verb := range verbs {
		p.Verb = verb
		all = append(all, p)
	}
	return all
}

// order has the verbs in the order in which a release comes to need them.
var order = []string{"get", "list", "create", "patch", "delete"}

// compareVerbs puts verbs that are not in order behind those that are.
func compareVerbs(a, b string) int {
	rank := func(verb string) int {
		if at := slices.Index(order, verb); at >= 0 {
			return at
		}
		return len(order)
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
}

// Compare orders permissions by namespace, group, resource, name and verb.
func Compare(a, b Permission) int {
	return cmp.Or(
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource),
		cmp.Compare(a.Name, b.Name), compareVerbs(a.Verb, b.Verb),
	)
}

// set is a resource in a namespace, for objects of one name or for all.
type set struct{ namespace, group, resource, name string }

func setOf(p Permission) set { return set{p.Namespace, p.Group, p.Resource, p.Name} }

// verbsOf maps each set to its verbs, in order.
func (l Permissions) verbsOf() map[set][]string {
	verbs := map[set][]string{}
	for _, p := range slices.SortedFunc(slices.Values(l), Compare) {
		if at := setOf(p); !slices.Contains(verbs[at], p.Verb) {
			verbs[at] = append(verbs[at], p.Verb)
		}
	}
	return verbs
}

// alike are the names of objects of one resource in one namespace that have the same verbs.
type alike struct {
	set
	verbs string
}

// merged maps sets without names, with verbs as "create, patch", to the names of the objects that they are for, sorted. All
// objects are the empty name.
func (l Permissions) merged() map[alike][]string {
	merged := map[alike][]string{}
	for at, verbs := range l.verbsOf() {
		key := alike{set: at, verbs: strings.Join(verbs, ", ")}
		key.name = ""
		merged[key] = append(merged[key], at.name)
	}
	for _, names := range merged {
		slices.Sort(names)
	}
	return merged
}

// sorted are the keys of what is merged, in a stable order.
func sorted(merged map[alike][]string) []alike {
	return slices.SortedFunc(maps.Keys(merged), func(a, b alike) int {
		return cmp.Or(
			cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.group, b.group), cmp.Compare(a.resource, b.resource),
			slices.Compare(merged[a], merged[b]), cmp.Compare(a.verbs, b.verbs),
		)
	})
}

// maxNames is how many objects a line names before it counts.
const maxNames = 3

// Lines names permissions, a line for those with the same verbs of the same resource in the same namespace, in a stable
// order: "create, patch deployments.apps in payments (api, web)".
func (l Permissions) Lines() []string {
	merged := l.merged()
	lines := make([]string, 0, len(merged))
	for _, key := range sorted(merged) {
		line := key.verbs + " " + key.resource
		if key.group != "" {
			line += "." + key.group
		}
		if key.namespace != "" {
			line += " in " + key.namespace
		}
		names := slices.DeleteFunc(slices.Clone(merged[key]), func(name string) bool { return name == "" })
		names = failure.AndMore(names[:min(len(names), maxNames)], len(names)-maxNames)
		if len(names) > 0 {
			line += " (" + strings.Join(names, ", ") + ")"
		}
		lines = append(lines, line)
	}
	return lines
}
