package build

import (
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ScopeFunc says whether objects of a kind have a namespace, and whether the kind is known at all.
type ScopeFunc func(schema.GroupKind) (namespaced, known bool)

// Placement says where objects go.
type Placement struct {
	// TargetNamespace, if set, is the namespace of every namespaced object, whatever its manifest says.
	TargetNamespace string
	// DefaultNamespace is the namespace of namespaced objects whose manifest names none.
	DefaultNamespace string
}

// Place sets the namespace of every object of m and returns the result; m stays as it is. A kind that scope does not know
// is a failure.Error with reason BuildFailed.
func Place(m Manifests, scope ScopeFunc, p Placement) (Manifests, error) {
	return Manifests{}, errors.New("not implemented")
}

// RenderedScopes knows the kinds that CustomResourceDefinitions among stages define.
func RenderedScopes(stages ...Manifests) ScopeFunc {
	return func(schema.GroupKind) (bool, bool) { return false, false }
}

// FirstKnown asks scopes in order and takes the first that knows the kind.
func FirstKnown(scopes ...ScopeFunc) ScopeFunc {
	return func(kind schema.GroupKind) (bool, bool) {
		for _, scope := range scopes {
			if namespaced, known := scope(kind); known {
				return namespaced, true
			}
		}
		return false, false
	}
}
