package app

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/kustomize/kyaml/openapi"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/policytest"
	"github.com/stageset/stageset/reconciler/build"
	sources "github.com/stageset/stageset/reconciler/source"
	"github.com/stageset/stageset/stagesetctl/files"
)

// isSource tells whether a document is a source of Flux. That of a producer is an ExternalArtifact.
func isSource(d files.Document) bool {
	named := v1.SourceReference{APIVersion: d.APIVersion(), Kind: v1.SourceKind(d.Kind())}
	return named.Kind != "" && named.APIVersion != "" && !named.IsProducer()
}

// factsOf is what expressions see of the source in d: as the reconciler reads it from an object of the cluster, or as the
// file says it.
func factsOf(d files.Document) (v1alpha1.SourceFacts, error) {
	var facts v1alpha1.SourceFacts
	if !isSource(d) {
		err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(d.Fields, &facts, true)
		if err != nil {
			return facts, d.At("", "is not a source, and not what is known of one: "+err.Error())
		}
		return facts, nil
	}
	object := d.Object()
	text := func(path ...string) string {
		value, _, _ := unstructured.NestedString(object.Object, path...)
		return value
	}
	facts = v1alpha1.SourceFacts{
		APIVersion: v1.SourceGroup + "/v1", Kind: object.GetKind(), Namespace: object.GetNamespace(), Name: object.GetName(),
		URL: text("spec", "url"), Revision: text("status", "artifact", "revision"), Digest: text("status", "artifact", "digest"),
	}
	if endpoint := text("spec", "endpoint"); facts.URL == "" && endpoint != "" {
		facts.URL = endpoint + "/" + text("spec", "bucketName")
	}
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	facts.Verified = slices.ContainsFunc(conditions, func(item any) bool {
		condition, ok := item.(map[string]any)
		return ok && condition["type"] == "SourceVerified" && condition["status"] == "True"
	})
	return facts, nil
}

// uses are the stages of --stageset whose source is in d; without --stageset it is the only stage of a StageSet.
func (a *asked) uses(d files.Document) []string {
	if a.owner == nil {
		return []string{""}
	}
	found := d.Object()
	var stages []string
	for _, stage := range stagesOf(a.owner) {
		ref := policytest.SourceReference(stage).In(a.owner.GetNamespace())
		placed := found.DeepCopy()
		placed.SetNamespace(cmp.Or(found.GetNamespace(), ref.Namespace))
		is := string(ref.Kind) == found.GetKind() && ref.Name == found.GetName() && !ref.IsProducer() ||
			ref.IsProducer() && sources.PointsBack(placed, ref)
		name, _ := stage["name"].(string)
		if is && placed.GetNamespace() == ref.Namespace {
			stages = append(stages, name)
		}
	}
	return stages
}

// unnamed is what a StageSet, its stage and its source are called if nothing says so.
const unnamed = "unnamed"

// source is what policies about sources are asked: the source of a stage. Where facts say nothing, the stage says which it
// is.
func (a *asked) source(stage string, facts v1alpha1.SourceFacts) (policies.SourceInput, error) {
	owner, err := a.ownerOf(facts)
	if err != nil {
		return policies.SourceInput{}, err
	}
	in := policies.SourceInput{StageSet: owner}
	if in.Namespace, err = a.namespaceOf(owner.GetNamespace()); err != nil {
		return in, fmt.Errorf("the StageSet %s %w", owner.GetName(), err)
	}
	owner.SetNamespace(in.Namespace.Name)
	for _, fields := range stagesOf(owner) {
		if stage == "" || fields["name"] == stage {
			in.Stage, _ = fields["name"].(string)
			in.Source = policytest.CompleteSource(facts, fields, in.Namespace.Name)
			return in, nil
		}
	}
	return in, fmt.Errorf("--stage: the StageSet %s has no stage %q", owner.GetName(), stage)
}

// sourceIn is what policies about sources are asked of the source in d: as that of the first stage that uses it. What is
// only known of a source is of the stage that the flags say.
func (a *asked) sourceIn(d files.Document) (policies.SourceInput, error) {
	facts, err := factsOf(d)
	if err != nil {
		return policies.SourceInput{}, err
	}
	if !isSource(d) {
		return a.source(a.stage, facts)
	}
	stages := a.uses(d)
	if len(stages) == 0 {
		return policies.SourceInput{}, d.At("metadata.name", "is the source of no stage of the StageSet "+a.owner.GetName())
	}
	return a.source(cmp.Or(a.stage, stages[0]), facts)
}

// ownerOf is a StageSet that uses the source that facts are known of: that of --stageset, or one with a single stage.
func (a *asked) ownerOf(facts v1alpha1.SourceFacts) (*unstructured.Unstructured, error) {
	if a.owner != nil {
		return a.owner.DeepCopy(), nil
	}
	owner := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1.GroupVersion.String(), "kind": kindStageSet, "metadata": map[string]any{"name": unnamed},
		"spec": map[string]any{"stages": []any{map[string]any{"name": unnamed, "sourceRef": sourceRef(facts)}}},
	}}
	owner.SetNamespace(facts.Namespace)
	return owner, fillIn(owner)
}

// sourceRef is how a stage names the source that facts are known of.
func sourceRef(facts v1alpha1.SourceFacts) map[string]any {
	ref := map[string]any{"name": unnamed}
	for field, value := range map[string]string{"kind": facts.Kind, "name": facts.Name, "namespace": facts.Namespace} {
		if value != "" {
			ref[field] = value
		}
	}
	return ref
}

// stagesOf are the stages of a StageSet.
func stagesOf(owner *unstructured.Unstructured) []map[string]any {
	list, _, _ := unstructured.NestedSlice(owner.Object, "spec", "stages")
	stages := make([]map[string]any, 0, len(list))
	for _, item := range list {
		if stage, ok := item.(map[string]any); ok {
			stages = append(stages, stage)
		}
	}
	return stages
}

// manifest is what policies about rendered objects are asked: the object in d as it would be applied.
func (a *asked) manifest(d files.Document, scopes scopes) (policies.ManifestInput, error) {
	if d.Kind() == "" || d.APIVersion() == "" {
		return policies.ManifestInput{}, d.At("", "has no apiVersion or no kind: what is judged are objects as they are rendered")
	}
	in, err := a.source(a.stage, a.facts)
	if err != nil {
		return policies.ManifestInput{}, err
	}
	object := d.Object()
	stage, target := map[string]any{}, v1alpha1.TargetFacts{}
	for _, fields := range stagesOf(in.StageSet) {
		if fields["name"] == in.Stage {
			stage = fields
		}
	}
	namespace, _ := stage["targetNamespace"].(string)
	scopes.place(object, namespace, in.StageSet.GetNamespace())
	if target.ServiceAccountName, _ = stage["serviceAccountName"].(string); target.ServiceAccountName == "" {
		target.ServiceAccountName, _, _ = unstructured.NestedString(in.StageSet.Object, "spec", "serviceAccountName")
	}
	_, target.Remote, _ = unstructured.NestedMap(in.StageSet.Object, "spec", "kubeConfig")
	return policies.ManifestInput{SourceInput: in, Object: object, Target: target}, nil
}

// scopes knows, of what is rendered together, what decides where objects go.
type scopes struct {
	// namespaced says of kinds that are not Kubernetes' own whether their objects have a namespace.
	namespaced map[schema.GroupKind]bool
	accounts   build.Accounts
}

// newScopes knows the kinds that CustomResourceDefinitions among documents define, and the ServiceAccounts among them.
func newScopes(documents []files.Document) scopes {
	known := scopes{namespaced: map[schema.GroupKind]bool{}, accounts: build.Accounts{}}
	for _, d := range documents {
		known.accounts.Add(d.Object())
		if d.Kind() != "CustomResourceDefinition" {
			continue
		}
		text := func(path ...string) string {
			value, _, _ := unstructured.NestedString(d.Fields, path...)
			return value
		}
		kind := schema.GroupKind{Group: text("spec", "group"), Kind: text("spec", "names", "kind")}
		known.namespaced[kind] = text("spec", "scope") == "Namespaced"
	}
	return known
}

// place puts object where it would be applied: into target, or else into the namespace that it names, or else into own; and
// has a binding name the accounts that go there with it. An object of a kind that nobody here knows stays where it says.
func (s scopes) place(object *unstructured.Unstructured, target, own string) {
	placement := build.Placement{TargetNamespace: target, DefaultNamespace: own}
	if subjects := placement.Subjects(object, s.accounts); subjects != nil {
		object.Object["subjects"] = subjects
	}
	namespaced, known := s.namespaced[object.GroupVersionKind().GroupKind()]
	if !known {
		namespaced, known = openapi.IsNamespaceScoped(kyaml.TypeMeta{APIVersion: object.GetAPIVersion(), Kind: object.GetKind()})
	}
	switch {
	case !known:
	case !namespaced:
		object.SetNamespace("")
	case target != "":
		object.SetNamespace(target)
	case object.GetNamespace() == "":
		object.SetNamespace(own)
	}
}
