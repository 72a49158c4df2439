package policies

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies/internal/celenv"
)

// SourceInput is the source of a stage that a Set is asked about. Nothing in it is changed.
type SourceInput struct {
	// StageSet is the StageSet as it is reconciled; Stage names its stage whose source it is.
	StageSet *unstructured.Unstructured
	Stage    string
	// Namespace is the StageSet's Namespace. When nil, whatever asks for it cannot be evaluated.
	Namespace *corev1.Namespace
	// Source is the source as it was resolved.
	Source v1alpha1.SourceFacts
}

// ManifestInput is an object that a stage renders, about which a Set is asked. Nothing in it is changed.
type ManifestInput struct {
	// SourceInput says where the object comes from.
	SourceInput
	// Object is the object as it will be applied.
	Object *unstructured.Unstructured
	// Target is what it will be applied to.
	Target v1alpha1.TargetFacts
}

// ValidateSource is everything that the policies with the target Source say about in.
func (s *Set) ValidateSource(ctx context.Context, in SourceInput) Decision {
	return s.decide(ctx, newSourceQuestion(in))
}

// ValidateManifest is everything that the policies with the target Manifest say about in.
func (s *Set) ValidateManifest(ctx context.Context, in ManifestInput) Decision {
	return s.decide(ctx, newManifestQuestion(in))
}

// ParamsOf are the objects that the policies with the target have as parameters now, for a release of in; false if one cannot
// tell. What a Set has said about equal input with equal parameters it says again.
func (s *Set) ParamsOf(ctx context.Context, target v1alpha1.Target, in SourceInput) ([]Param, bool) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout/policyTimeShare)
	defer cancel()
	q := in.question(target)
	var all []Param
	for _, p := range s.byTarget[target] {
		if p.params.ref == nil || p.params.fixed != nil || p.match.excluded[q.namespace] {
			continue
		}
		selected, err := matcher{namespaces: p.match.namespaces}.selects(q)
		if err != nil {
			return nil, false
		}
		if !selected {
			continue
		}
		_, used, err := p.params.find(ctx, s.lookup, p.name, q.namespace)
		if err != nil {
			return nil, false
		}
		all = append(all, used...)
	}
	return all, true
}

// HasTarget tells whether there is a policy with the target, so that nobody needs to collect what nobody asks for.
func (s *Set) HasTarget(target v1alpha1.Target) bool { return len(s.byTarget[target]) > 0 }

func newSourceQuestion(in SourceInput) question {
	q := in.question(v1alpha1.TargetSource)
	q.kind = schema.FromAPIVersionAndKind(in.Source.APIVersion, in.Source.Kind)
	q.labelled = []*unstructured.Unstructured{in.StageSet}
	q.release = celenv.Release(fields(in.StageSet), in.stage(), celenv.SourceVariables(in.Source), nil)
	return q
}

func newManifestQuestion(in ManifestInput) question {
	q := in.question(v1alpha1.TargetManifest)
	q.Object = in.Object
	if in.Object != nil {
		q.kind = in.Object.GroupVersionKind()
	}
	q.labelled = []*unstructured.Unstructured{in.Object}
	target := celenv.TargetVariables(in.Target)
	q.release = celenv.Release(fields(in.StageSet), in.stage(), celenv.SourceVariables(in.Source), &target)
	return q
}

func (in SourceInput) question(target v1alpha1.Target) question {
	q := question{Input: Input{Namespace: in.Namespace}, target: target}
	switch {
	case in.StageSet != nil && in.StageSet.GetNamespace() != "":
		q.namespace = in.StageSet.GetNamespace()
	case in.Namespace != nil:
		q.namespace = in.Namespace.Name
	}
	return q
}

// stage are the fields of the stage; nil if there is no such stage.
func (in SourceInput) stage() map[string]any {
	spec, _ := fields(in.StageSet)["spec"].(map[string]any)
	stages, _ := spec["stages"].([]any)
	for _, item := range stages {
		if stage, ok := item.(map[string]any); ok && stage["name"] == in.Stage {
			return stage
		}
	}
	return nil
}
