package render

import (
	"cmp"
	"context"
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/build"
	"github.com/stageset/stageset/reconciler/permissions"
)

// Need is what an account needs.
type Need struct {
	// Account is its name.
	Account string
	// Exactly are the permissions for each object, by name.
	Exactly permissions.Permissions
	// ByKind are those of them that are better given for all objects of their kind in their namespace: a release comes to
	// have others.
	ByKind map[permissions.Permission]bool
}

// Granted are the permissions that give an account what of its needs is in missing.
func (n Need) Granted(missing permissions.Permissions) permissions.Permissions {
	granted := slices.Clone(missing)
	for i, p := range granted {
		if n.ByKind[p] {
			granted[i].Name = ""
		}
	}
	return granted
}

// needs collects what accounts need.
type needs struct {
	cluster *Cluster
	set     *v1.StageSet
	defined map[schema.GroupKind]string
	of      map[string]*Need
}

// Needs are what the accounts of a release need for it, by account: to read what the StageSet refers to, to apply and delete
// the objects, and to give others what roles and bindings among them give. Objects in no namespace, and what is only read,
// are needed by name.
func (c *Cluster) Needs(set *v1.StageSet, stages []Stage) []Need {
	n := needs{cluster: c, set: set, defined: map[schema.GroupKind]string{}, of: map[string]*Need{}}
	for _, stage := range stages {
		for _, object := range stage.Objects {
			n.define(object)
		}
	}
	n.references(stages)
	for _, stage := range stages {
		for _, object := range stage.Objects {
			n.object(stage, object)
			n.gives(stage, stages, object)
		}
	}
	all := make([]Need, 0, len(n.of))
	for _, account := range slices.Sorted(maps.Keys(n.of)) {
		all = append(all, *n.of[account])
	}
	return all
}

// NewNamespaces are the namespaces that a release makes, and that there are not: roles in them cannot be made before.
func (c *Cluster) NewNamespaces(ctx context.Context, stages []Stage) []string {
	var names []string
	for _, stage := range stages {
		for _, object := range stage.Objects {
			isNamespace := object.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Namespace"})
			if isNamespace && c.lacksNamespace(ctx, object.GetName()) {
				names = append(names, object.GetName())
			}
		}
	}
	return names
}

// add adds needs of an account.
func (n *needs) add(account string, byKind bool, all permissions.Permissions) {
	need := n.of[account]
	if need == nil {
		need = &Need{Account: account, ByKind: map[permissions.Permission]bool{}}
		n.of[account] = need
	}
	need.Exactly = append(need.Exactly, all...)
	for _, p := range all {
		if byKind {
			need.ByKind[p] = true
		}
	}
}

// define notes the resource of a kind that the release itself defines.
func (n *needs) define(object build.Object) {
	if object.GetKind() != "CustomResourceDefinition" {
		return
	}
	text := func(path ...string) string {
		value, _, _ := unstructured.NestedString(object.Object, path...)
		return value
	}
	kind := schema.GroupKind{Group: text("spec", "group"), Kind: text("spec", "names", "kind")}
	n.defined[kind] = text("spec", "names", "plural")
}

// resource is the resource of a kind; empty if nobody knows it.
func (n *needs) resource(kind schema.GroupKind) string {
	if mapping, err := n.cluster.kinds.RESTMapping(kind); err == nil {
		return mapping.Resource.Resource
	}
	if kind.Group == v1.SourceGroup || kind.Group == v1.GroupVersion.Group { // which may still have to be installed
		plural, _ := meta.UnsafeGuessKindToResource(kind.WithVersion(""))
		return plural.Resource
	}
	return n.defined[kind]
}

// read are the permissions to read one object.
func (n *needs) read(account string, kind schema.GroupKind, namespace, name string) {
	resource := n.resource(kind)
	if resource == "" {
		return
	}
	if namespaced, known := n.cluster.scope(kind); known && !namespaced {
		namespace = ""
	}
	object := permissions.Permission{Group: kind.Group, Resource: resource, Namespace: namespace, Name: name}
	n.add(account, false, permissions.Of(object, "get"))
}

// references are what the StageSet refers to. What is not a stage's is read as the StageSet's own account.
func (n *needs) references(stages []Stage) {
	account := n.set.Spec.ServiceAccountName
	for _, dependency := range n.set.Spec.DependsOn {
		n.read(account, schema.GroupKind{Group: v1.GroupVersion.Group, Kind: "StageSet"},
			cmp.Or(dependency.Namespace, n.set.Namespace), dependency.Name)
	}
	for _, stage := range stages {
		if stage.PostBuild != nil {
			for _, ref := range stage.PostBuild.SubstituteFrom {
				n.read(account, schema.GroupKind{Kind: string(ref.Kind)}, n.set.Namespace, ref.Name)
			}
		}
		artifacts := schema.GroupKind{Group: v1.SourceGroup, Kind: string(v1.SourceKindExternalArtifact)}
		if stage.SourceRef.IsProducer() {
			n.add(stage.Account, false, permissions.Of(permissions.Permission{
				Group: artifacts.Group, Resource: n.resource(artifacts), Namespace: stage.Source.Namespace,
			}, "list"))
		} else {
			n.read(stage.Account, schema.GroupKind{Group: v1.SourceGroup, Kind: string(stage.Source.Kind)},
				stage.Source.Namespace, stage.Source.Name)
		}
		if stage.ReadyChecks == nil {
			continue
		}
		for _, check := range stage.ReadyChecks.Checks {
			n.read(stage.Account, schema.FromAPIVersionAndKind(check.APIVersion, check.Kind).GroupKind(),
				cmp.Or(check.Namespace, stage.TargetNamespace, n.set.Namespace), check.Name)
		}
	}
}

// object is what applying and deleting an object needs.
func (n *needs) object(stage Stage, object build.Object) {
	kind := object.GroupVersionKind().GroupKind()
	resource := n.resource(kind)
	if resource == "" {
		return
	}
	verbs := []string{"get", "create", "patch"}
	kept := object.GetAnnotations()[v1.AnnotationPrune] == v1.PruneDisabled ||
		kind == (schema.GroupKind{Kind: "Namespace"}) && object.GetName() == n.set.Namespace
	if stage.Prunes() && !kept {
		verbs = append(verbs, "delete")
	}
	n.add(stage.Account, object.GetNamespace() != "", permissions.Of(permissions.Permission{
		Group: kind.Group, Resource: resource, Namespace: object.GetNamespace(), Name: object.GetName(),
	}, verbs...))
}

// gives is what an account needs to give others permissions: to have them itself, or, where what they are is not in the
// object, the verb for doing so all the same.
func (n *needs) gives(stage Stage, stages []Stage, object build.Object) {
	kind := object.GroupVersionKind().GroupKind()
	if kind.Group != rbacv1.GroupName {
		return
	}
	switch kind.Kind {
	case "Role", "ClusterRole":
		var role rbacv1.ClusterRole // a Role has nothing else
		if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role) != nil {
			return // which the API server says better
		}
		if role.AggregationRule != nil || slices.ContainsFunc(role.Rules, aboutPaths) {
			n.add(stage.Account, false, permissions.Of(permissions.Permission{
				Group: rbacv1.GroupName, Resource: "clusterroles", Name: role.Name,
			}, "escalate"))
			return
		}
		n.add(stage.Account, false, permissions.Given(role.Rules, object.GetNamespace()))
	case "RoleBinding", "ClusterRoleBinding":
		var binding rbacv1.RoleBinding // a ClusterRoleBinding has nothing else
		if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &binding) != nil {
			return
		}
		if renders(stages, stage.Account, binding.RoleRef, object.GetNamespace()) {
			return
		}
		n.add(stage.Account, false, permissions.Of(permissions.Permission{
			Group: rbacv1.GroupName, Resource: n.resource(schema.GroupKind{Group: rbacv1.GroupName, Kind: binding.RoleRef.Kind}),
			Namespace: object.GetNamespace(), Name: binding.RoleRef.Name,
		}, "bind"))
	}
}

// aboutPaths is true for a rule that is not about objects.
func aboutPaths(rule rbacv1.PolicyRule) bool { return len(rule.NonResourceURLs) > 0 }

// renders is true when stages of the account render a role with all that it gives.
func renders(stages []Stage, account string, role rbacv1.RoleRef, namespace string) bool {
	return slices.ContainsFunc(stages, func(stage Stage) bool {
		return stage.Account == account && slices.ContainsFunc(stage.Objects, func(object build.Object) bool {
			same := object.GetKind() == role.Kind && object.GetName() == role.Name &&
				object.GroupVersionKind().Group == rbacv1.GroupName && (role.Kind != "Role" || object.GetNamespace() == namespace)
			_, aggregates := object.Object["aggregationRule"]
			return same && !aggregates
		})
	})
}
