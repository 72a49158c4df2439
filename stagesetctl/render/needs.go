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

// Need is what an account needs in one cluster.
type Need struct {
	// Elsewhere is true in the cluster that spec.kubeConfig leads to, and false in the StageSet's own.
	Elsewhere bool
	// Account is the name of the account. It is empty for what no account is named for, which the reconciler does, and
	// elsewhere the user that spec.kubeConfig leads to, who also impersonates the accounts.
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

// who is an account in a cluster, as a Need has both.
type who struct {
	elsewhere bool
	account   string
}

func compareWho(a, b who) int {
	if a.elsewhere != b.elsewhere {
		if a.elsewhere {
			return 1
		}
		return -1
	}
	return cmp.Compare(a.account, b.account)
}

// needs collects what accounts need.
type needs struct {
	*Release
	defined map[schema.GroupKind]string
	of      map[who]*Need
}

// Needs are what the accounts of a release need for it, by cluster and account: to read what the StageSet refers to, to apply
// and delete the objects, to give others what roles and bindings among them give, and to get to another cluster. Objects in
// no namespace, and what is only read, are needed by name.
func (r *Release) Needs() []Need {
	n := needs{Release: r, defined: map[schema.GroupKind]string{}, of: map[who]*Need{}}
	for _, stage := range r.Stages {
		for _, object := range stage.Objects {
			n.define(object)
		}
	}
	n.references()
	n.kubeConfig()
	for _, stage := range r.Stages {
		n.readyChecks(stage)
		for _, object := range stage.Objects {
			n.object(stage, object)
			n.gives(stage, object)
		}
	}
	all := make([]Need, 0, len(n.of))
	for _, by := range slices.SortedFunc(maps.Keys(n.of), compareWho) {
		all = append(all, *n.of[by])
	}
	return all
}

// NewNamespaces are the namespaces that there are not and that a release makes, or that it needs in another cluster to be
// let in: roles in them cannot be made before. Of a cluster that is not known, all are taken to be missing.
func (r *Release) NewNamespaces(ctx context.Context, elsewhere bool) []string {
	if elsewhere != r.Elsewhere() {
		return nil
	}
	var names []string
	if elsewhere {
		names = append(names, r.set.Namespace)
	}
	for _, stage := range r.Stages {
		for _, object := range stage.Objects {
			if object.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Namespace"}) {
				names = append(names, object.GetName())
			}
		}
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool {
		known := !elsewhere || r.target != nil
		return known && !r.in(elsewhere).lacksNamespace(ctx, name)
	})
}

// applies is who applies a stage.
func (n *needs) applies(stage Stage) who {
	return who{elsewhere: n.Elsewhere(), account: stage.Account}
}

// add adds needs.
func (n *needs) add(by who, byKind bool, all permissions.Permissions) {
	need := n.of[by]
	if need == nil {
		need = &Need{Elsewhere: by.elsewhere, Account: by.account, ByKind: map[permissions.Permission]bool{}}
		n.of[by] = need
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

// resource is the resource of a kind in a cluster; empty if nobody knows it.
func (n *needs) resource(elsewhere bool, kind schema.GroupKind) string {
	if mapping, err := n.in(elsewhere).kinds.RESTMapping(kind); err == nil {
		return mapping.Resource.Resource
	}
	if kind.Group == v1.SourceGroup || kind.Group == v1.GroupVersion.Group { // which may still have to be installed
		plural, _ := meta.UnsafeGuessKindToResource(kind.WithVersion(""))
		return plural.Resource
	}
	return n.defined[kind]
}

// read are the permissions to read one object.
func (n *needs) read(by who, kind schema.GroupKind, namespace, name string) {
	resource := n.resource(by.elsewhere, kind)
	if resource == "" {
		return
	}
	if namespaced, known := n.in(by.elsewhere).scope(kind); known && !namespaced {
		namespace = ""
	}
	object := permissions.Permission{Group: kind.Group, Resource: resource, Namespace: namespace, Name: name}
	n.add(by, false, permissions.Of(object, "get"))
}

// references are what the StageSet refers to in its own cluster. What is not a stage's is read as the StageSet's own account.
func (n *needs) references() {
	own := who{account: n.set.Spec.ServiceAccountName}
	for _, dependency := range n.set.Spec.DependsOn {
		n.read(own, schema.GroupKind{Group: v1.GroupVersion.Group, Kind: "StageSet"},
			cmp.Or(dependency.Namespace, n.set.Namespace), dependency.Name)
	}
	for _, stage := range n.Stages {
		if stage.PostBuild != nil {
			for _, ref := range stage.PostBuild.SubstituteFrom {
				n.read(own, schema.GroupKind{Kind: string(ref.Kind)}, n.set.Namespace, ref.Name)
			}
		}
		reads := who{account: stage.Account}
		artifacts := schema.GroupKind{Group: v1.SourceGroup, Kind: string(v1.SourceKindExternalArtifact)}
		if stage.SourceRef.IsProducer() {
			n.add(reads, false, permissions.Of(permissions.Permission{
				Group: artifacts.Group, Resource: n.resource(false, artifacts), Namespace: stage.Source.Namespace,
			}, "list"))
		} else {
			n.read(reads, schema.GroupKind{Group: v1.SourceGroup, Kind: string(stage.Source.Kind)},
				stage.Source.Namespace, stage.Source.Name)
		}
	}
}

// readyChecks are the objects that a stage waits for and does not apply.
func (n *needs) readyChecks(stage Stage) {
	if stage.ReadyChecks == nil {
		return
	}
	for _, check := range stage.ReadyChecks.Checks {
		n.read(n.applies(stage), schema.FromAPIVersionAndKind(check.APIVersion, check.Kind).GroupKind(),
			cmp.Or(check.Namespace, stage.TargetNamespace, n.set.Namespace), check.Name)
	}
}

// object is what applying and deleting an object needs.
func (n *needs) object(stage Stage, object build.Object) {
	kind := object.GroupVersionKind().GroupKind()
	resource := n.resource(n.Elsewhere(), kind)
	if resource == "" {
		return
	}
	verbs := []string{"get", "create", "patch"}
	kept := object.GetAnnotations()[v1.AnnotationPrune] == v1.PruneDisabled ||
		kind == (schema.GroupKind{Kind: "Namespace"}) && object.GetName() == n.set.Namespace
	if stage.Prunes() && !kept {
		verbs = append(verbs, "delete")
	}
	n.add(n.applies(stage), object.GetNamespace() != "", permissions.Of(permissions.Permission{
		Group: kind.Group, Resource: resource, Namespace: object.GetNamespace(), Name: object.GetName(),
	}, verbs...))
}

// gives is what an account needs to give others permissions: to have them itself, or, where what they are is not in the
// object, the verb for doing so all the same.
func (n *needs) gives(stage Stage, object build.Object) {
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
			n.add(n.applies(stage), false, permissions.Of(permissions.Permission{
				Group: rbacv1.GroupName, Resource: "clusterroles", Name: role.Name,
			}, "escalate"))
			return
		}
		n.add(n.applies(stage), false, permissions.Given(role.Rules, object.GetNamespace()))
	case "RoleBinding", "ClusterRoleBinding":
		var binding rbacv1.RoleBinding // a ClusterRoleBinding has nothing else
		if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &binding) != nil {
			return
		}
		if renders(n.Stages, stage.Account, binding.RoleRef, object.GetNamespace()) {
			return
		}
		n.add(n.applies(stage), false, permissions.Of(permissions.Permission{
			Group:     rbacv1.GroupName,
			Resource:  n.resource(n.Elsewhere(), schema.GroupKind{Group: rbacv1.GroupName, Kind: binding.RoleRef.Kind}),
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
