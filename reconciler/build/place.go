package build

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

// ScopeFunc says whether objects of a kind have a namespace, and whether the kind is known at all.
type ScopeFunc func(schema.GroupKind) (namespaced, known bool)

// Placement says where objects go.
type Placement struct {
	// TargetNamespace, if set, is the namespace of every namespaced object, whatever its manifest says, and of the
	// ServiceAccounts that bindings name: those that the stage renders, and those without a namespace.
	TargetNamespace string
	// DefaultNamespace is the namespace of namespaced objects whose manifest names none.
	DefaultNamespace string
}

// Place sets the namespace of every object of m and returns the result; m stays as it is. Cluster-scoped objects lose a
// namespace that their manifest gives them: the API server ignores it, and an object must not have two names. A kind that
// scope does not know is a Stalled failure.Error with reason BuildFailed.
func Place(m Manifests, scope ScopeFunc, p Placement) (Manifests, error) {
	placed := m
	placed.objects = make([]Object, len(m.objects))
	accounts := Accounts{}
	for _, object := range m.objects {
		accounts.Add(object.Unstructured)
	}
	for i, object := range m.objects {
		namespace, err := p.namespaceOf(object, scope)
		if err != nil {
			return Manifests{}, err
		}
		subjects := p.Subjects(object.Unstructured, accounts)
		if namespace != object.GetNamespace() || subjects != nil {
			object.Unstructured = object.DeepCopy()
			object.SetNamespace(namespace)
			if subjects != nil {
				object.Unstructured.Object["subjects"] = subjects
			}
		}
		placed.objects[i] = object
	}
	return placed, nil
}

func (p Placement) namespaceOf(object Object, scope ScopeFunc) (string, error) {
	namespaced, known := scope(object.GroupVersionKind().GroupKind())
	switch {
	case !known:
		return "", failure.NewStalled(v1.ReasonBuildFailed,
			"%s: %s: neither the cluster nor the release defines kind %s of %s; install its CustomResourceDefinition first, "+
				"or render it in this stage or an earlier one", object.Origin, object, object.GetKind(), object.GetAPIVersion())
	case !namespaced:
		return "", nil
	case p.TargetNamespace != "":
		return p.TargetNamespace, nil
	case object.GetNamespace() != "":
		return object.GetNamespace(), nil
	default:
		return p.DefaultNamespace, nil
	}
}

// account identifies a ServiceAccount as manifests do.
type account struct{ namespace, name string }

// Accounts are the ServiceAccounts that a stage renders, where their manifests put them.
type Accounts map[account]bool

// Add adds an object, if it is a ServiceAccount.
func (a Accounts) Add(object *unstructured.Unstructured) {
	if object.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "ServiceAccount"}) {
		a[account{object.GetNamespace(), object.GetName()}] = true
	}
}

// Subjects are the subjects of a binding with the target namespace, or nil if they stay as they are.
func (p Placement) Subjects(object *unstructured.Unstructured, rendered Accounts) []any {
	kind := object.GroupVersionKind().GroupKind()
	if p.TargetNamespace == "" || kind.Group != "rbac.authorization.k8s.io" ||
		kind.Kind != "RoleBinding" && kind.Kind != "ClusterRoleBinding" {
		return nil
	}
	subjects, _, _ := unstructured.NestedSlice(object.Object, "subjects") // a copy
	changed := false
	for _, item := range subjects {
		subject, ok := item.(map[string]any)
		if !ok || subject["kind"] != "ServiceAccount" {
			continue
		}
		name, _ := subject["name"].(string)
		namespace, _ := subject["namespace"].(string)
		if namespace != p.TargetNamespace && (namespace == "" || rendered[account{namespace, name}]) {
			subject["namespace"], changed = p.TargetNamespace, true
		}
	}
	if !changed {
		return nil
	}
	return subjects
}

var crdKind = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

// RenderedScopes knows the kinds that CustomResourceDefinitions among stages define.
func RenderedScopes(stages ...Manifests) ScopeFunc {
	scopes := map[schema.GroupKind]bool{}
	for _, stage := range stages {
		for _, object := range stage.objects {
			if object.GroupVersionKind().GroupKind() != crdKind {
				continue
			}
			group, _, _ := unstructured.NestedString(object.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(object.Object, "spec", "names", "kind")
			scope, _, _ := unstructured.NestedString(object.Object, "spec", "scope")
			scopes[schema.GroupKind{Group: group, Kind: kind}] = scope == "Namespaced"
		}
	}
	return func(kind schema.GroupKind) (namespaced, known bool) {
		namespaced, known = scopes[kind]
		return namespaced, known
	}
}

// FirstKnown asks scopes in order and takes the first that knows the kind.
func FirstKnown(scopes ...ScopeFunc) ScopeFunc {
	return func(kind schema.GroupKind) (namespaced, known bool) {
		for _, scope := range scopes {
			if namespaced, known := scope(kind); known {
				return namespaced, true
			}
		}
		return false, false
	}
}
