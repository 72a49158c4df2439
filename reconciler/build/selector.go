package build

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/resid"

	v1 "github.com/stageset/stageset/api/v1"
)

// selector is a target of a patch.
type selector struct {
	pattern             *types.SelectorRegex
	namespaced          bool
	labels, annotations labels.Selector
}

// newSelector is nil for no target.
func newSelector(name string, target *v1.PatchTarget) (*selector, error) {
	if target == nil {
		return nil, nil
	}
	s := selector{namespaced: target.Namespace != ""}
	if s.namespaced {
		warmUp()
	}
	var err error
	s.pattern, err = types.NewSelectorRegex(&types.Selector{ResId: resid.ResId{
		Gvk:  resid.Gvk{Group: target.Group, Version: target.Version, Kind: target.Kind},
		Name: target.Name, Namespace: target.Namespace,
	}})
	if err != nil {
		return nil, fmt.Errorf("%s: target: %w", name, err)
	}
	if s.labels, err = labels.Parse(target.LabelSelector); err != nil {
		return nil, fmt.Errorf("%s: target.labelSelector: %w", name, err)
	}
	if s.annotations, err = labels.Parse(target.AnnotationSelector); err != nil {
		return nil, fmt.Errorf("%s: target.annotationSelector: %w", name, err)
	}
	return &s, nil
}

func (s *selector) selects(object Object) bool {
	gvk := object.GroupVersionKind()
	return s.pattern.MatchGvk(resid.Gvk{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind}) &&
		s.pattern.MatchName(object.GetName()) &&
		(!s.namespaced || s.pattern.MatchNamespace(object.id().EffectiveNamespace())) &&
		s.labels.Matches(labels.Set(object.GetLabels())) && s.annotations.Matches(labels.Set(object.GetAnnotations()))
}

// id is how kustomize identifies the object: no namespace and default are the same to it, and it knows the built-in kinds
// that have none. It needs warmUp.
func (o Object) id() resid.ResId {
	gvk := o.GroupVersionKind()
	return resid.NewResIdWithNamespace(resid.NewGvk(gvk.Group, gvk.Version, gvk.Kind), o.GetName(), o.GetNamespace())
}
