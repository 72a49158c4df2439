package policies

import (
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/stageset/stageset/api/v1alpha1"
)

var errNoNamespace = errors.New(
	"cannot be evaluated: it selects namespaces by their labels, and the Namespace could not be read")

// matcher decides, without CEL, whether a policy is evaluated. The zero matcher reaches creations and updates.
type matcher struct {
	operations map[v1alpha1.Operation]bool
	excluded   map[string]bool
	// kinds is empty if every kind is selected.
	kinds []v1alpha1.ResourceRule
	// namespaces and objects are nil if everything is selected.
	namespaces, objects labels.Selector
}

func newMatcher(target v1alpha1.Target, constraints *v1alpha1.MatchConstraints, report func(string, error)) matcher {
	m := matcher{operations: map[v1alpha1.Operation]bool{v1alpha1.OperationCreate: true, v1alpha1.OperationUpdate: true}}
	if constraints == nil {
		return m
	}
	if len(constraints.Operations) > 0 {
		m.operations = map[v1alpha1.Operation]bool{}
	}
	for _, operation := range constraints.Operations {
		switch operation {
		case v1alpha1.OperationCreate, v1alpha1.OperationUpdate, v1alpha1.OperationDelete:
			m.operations[operation] = true
		default:
			report("operations", fmt.Errorf("%q is not CREATE, UPDATE or DELETE", operation))
		}
	}
	switch about := target == v1alpha1.TargetStageSet; {
	case !about && len(constraints.Operations) > 0:
		report("operations", fmt.Errorf("are for the target StageSet, not for %s", target))
	case about && len(constraints.ResourceRules) > 0:
		report("resourceRules", errors.New("are for the targets Source and Manifest, not for StageSet"))
	}
	m.kinds = constraints.ResourceRules
	m.excluded = map[string]bool{}
	for _, namespace := range constraints.ExcludeNamespaces {
		m.excluded[namespace] = true
	}
	m.namespaces = newSelector(constraints.NamespaceSelector, func(err error) { report("namespaceSelector", err) })
	m.objects = newSelector(constraints.ObjectSelector, func(err error) { report("objectSelector", err) })
	return m
}

func newSelector(selector *metav1.LabelSelector, report func(error)) labels.Selector {
	if selector == nil {
		return nil
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		report(err)
		return nil
	}
	return parsed
}

// reaches tells whether the operation, or the kind, and the name of the namespace let q in.
func (m matcher) reaches(q question) bool {
	if m.excluded[q.namespace] {
		return false
	}
	if q.target == v1alpha1.TargetStageSet {
		return m.operations[q.operation()]
	}
	return len(m.kinds) == 0 || slices.ContainsFunc(m.kinds, func(rule v1alpha1.ResourceRule) bool {
		return among(rule.APIGroups, q.kind.Group) && among(rule.APIVersions, q.kind.Version) && among(rule.Kinds, q.kind.Kind)
	})
}

func among(list []string, name string) bool {
	return len(list) == 0 || slices.Contains(list, "*") || slices.Contains(list, name)
}

// selects tells whether the labels of the namespace, and of one of the labelled objects, are selected. It cannot tell if the
// Namespace is needed and not known: that is an error, never "not selected".
func (m matcher) selects(q question) (bool, error) {
	if m.objects != nil && !m.selectsOne(q.labelled) {
		return false, nil
	}
	if m.namespaces == nil {
		return true, nil
	}
	if q.Namespace == nil {
		return false, errNoNamespace
	}
	return m.namespaces.Matches(labels.Set(q.Namespace.Labels)), nil
}

func (m matcher) selectsOne(objects []*unstructured.Unstructured) bool {
	for _, object := range objects {
		if object != nil && m.objects.Matches(labels.Set(object.GetLabels())) {
			return true
		}
	}
	return false
}
