package policytest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

// defaultStageSet is what a source, or objects, belong to if a test does not say.
const defaultStageSet = `{"metadata":{"name":"app"},"spec":{"stages":[{"name":"web","sourceRef":{"name":"app"}}]}}`

// judgeRelease is what set says about the source, or about all objects together, of a test.
func judgeRelease(ctx context.Context, set *policies.Set, target v1alpha1.Target, test *v1alpha1.PolicyTest) (
	policies.Decision, error,
) {
	in, err := sourceInput(test)
	if err != nil {
		return policies.Decision{}, err
	}
	if target == v1alpha1.TargetSource {
		if test.Object != nil || len(test.Objects) > 0 {
			return policies.Decision{}, errors.New("object: a source has none: set source")
		}
		return set.ValidateSource(ctx, in), nil
	}
	objects, err := manifests(test)
	if err != nil {
		return policies.Decision{}, err
	}
	on := v1alpha1.TargetFacts{}
	if test.Target != nil {
		on = *test.Target
	}
	var all policies.Decision
	for _, object := range objects {
		said := set.ValidateManifest(ctx, policies.ManifestInput{SourceInput: in, Object: object, Target: on})
		all.Denied = append(all.Denied, said.Denied...)
		all.Warned = append(all.Warned, said.Warned...)
		all.Audited = append(all.Audited, said.Audited...)
		all.Ignored = append(all.Ignored, said.Ignored...)
	}
	return all, nil
}

// sourceInput is the source of a test, with what it belongs to.
func sourceInput(test *v1alpha1.PolicyTest) (policies.SourceInput, error) {
	var in policies.SourceInput
	if test.OldObject != nil || test.Operation != "" || test.User != nil || test.Defaulted != nil {
		return in, errors.New("oldObject, operation, user and defaulted are for the target StageSet")
	}
	var err error
	if in.Namespace, err = namespace(v1alpha1.TargetManifest, test); err != nil {
		return in, err
	}
	raw := test.StageSet
	if raw == nil {
		raw = &runtime.RawExtension{Raw: []byte(defaultStageSet)}
	}
	if in.StageSet, err = stageSet("stageSet", raw, in.Namespace.Name); err != nil {
		return in, err
	}
	stage, err := stageOf(in.StageSet, test.Stage)
	if err != nil {
		return in, err
	}
	in.Stage, _ = stage["name"].(string)
	if test.Source != nil {
		in.Source = *test.Source
	}
	in.Source = CompleteSource(in.Source, stage, in.Namespace.Name)
	return in, nil
}

// stageOf is the stage name of owner, or its first if no name is given.
func stageOf(owner *unstructured.Unstructured, name string) (map[string]any, error) {
	stages, _, _ := unstructured.NestedSlice(owner.Object, "spec", "stages")
	i := slices.IndexFunc(stages, func(item any) bool {
		stage, ok := item.(map[string]any)
		return ok && (name == "" || stage["name"] == name)
	})
	if i < 0 {
		return nil, fmt.Errorf("stage: the StageSet has no stage %q", name)
	}
	return stages[i].(map[string]any), nil
}

// CompleteSource is facts, with what a stage of a StageSet in namespace says of its source where facts say nothing. That of a
// producer is an ExternalArtifact, which is taken to have the name of the producer.
func CompleteSource(facts v1alpha1.SourceFacts, stage map[string]any, namespace string) v1alpha1.SourceFacts {
	named := SourceReference(stage).In(namespace)
	if named.IsProducer() {
		named.Kind = v1.SourceKindExternalArtifact
	}
	facts.APIVersion = cmp.Or(facts.APIVersion, v1.SourceGroup+"/v1")
	facts.Kind = cmp.Or(facts.Kind, string(named.Kind))
	facts.Namespace = cmp.Or(facts.Namespace, named.Namespace)
	facts.Name = cmp.Or(facts.Name, named.Name)
	return facts
}

// SourceReference is how a stage names its source. What is malformed is empty.
func SourceReference(stage map[string]any) v1.SourceReference {
	text := func(field string) string {
		value, _, _ := unstructured.NestedString(stage, "sourceRef", field)
		return value
	}
	return v1.SourceReference{
		APIVersion: text("apiVersion"), Kind: v1.SourceKind(text("kind")), Namespace: text("namespace"), Name: text("name"),
	}
}

// manifests are the objects of a test.
func manifests(test *v1alpha1.PolicyTest) ([]*unstructured.Unstructured, error) {
	raws := slices.Clone(test.Objects)
	if test.Object != nil {
		raws = append(raws, *test.Object)
	}
	if len(raws) == 0 {
		return nil, errors.New("object: set object or objects")
	}
	made := make([]*unstructured.Unstructured, 0, len(raws))
	for i := range raws {
		fields, err := decode("object", &raws[i])
		if err != nil {
			return nil, err
		}
		object := &unstructured.Unstructured{Object: fields}
		if object.GetAPIVersion() == "" || object.GetKind() == "" {
			return nil, errors.New("object: apiVersion or kind is not set")
		}
		made = append(made, object)
	}
	return made, nil
}
