package policies_test

import (
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

// policy is a policy with the spec that the YAML text has.
func policy(t testing.TB, name, spec string) v1alpha1.StageSetPolicy {
	t.Helper()
	made := v1alpha1.StageSetPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := yaml.UnmarshalStrict([]byte(spec), &made.Spec); err != nil {
		t.Fatalf("%v in\n%s", err, spec)
	}
	return made
}

// rule is a policy with one rule and whatever else the YAML text has.
func rule(t testing.TB, name, expression, more string) v1alpha1.StageSetPolicy {
	t.Helper()
	made := policy(t, name, more)
	made.Spec.Validations = []v1alpha1.Validation{{Name: "rule", Expression: expression, Message: "is wrong"}}
	return made
}

func compile(t testing.TB, list ...v1alpha1.StageSetPolicy) *policies.Set {
	t.Helper()
	set, err := policies.Compile(t.Context(), list, policies.Options{PlatformNamespaces: []string{"platform"}})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// stageSet is a StageSet in namespace team-a that the YAML text adds to, or changes.
func stageSet(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{}}
	const base = `
apiVersion: stages.metio.wtf/v1
kind: StageSet
metadata: {name: app, namespace: team-a}
spec: {stages: [{name: web, sourceRef: {name: app}}]}
`
	for _, part := range []string{base, text} {
		text, err := yaml.YAMLToJSON([]byte(part))
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := utiljson.Unmarshal(text, &fields); err != nil {
			t.Fatal(err)
		}
		for key, value := range fields {
			object.Object[key] = value
		}
	}
	return object
}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// creating is the request that creates object.
func creating(object *unstructured.Unstructured) policies.Input {
	return requesting(admissionv1.Create, object, nil)
}

// updating is the request that makes object of old.
func updating(object, old *unstructured.Unstructured) policies.Input {
	return requesting(admissionv1.Update, object, old)
}

func requesting(operation admissionv1.Operation, object, old *unstructured.Unstructured) policies.Input {
	named := object
	if named == nil {
		named = old
	}
	request := policies.NewRequest(operation, named.GetNamespace(), named.GetName())
	request.UserInfo.Username = "joe"
	return policies.Input{
		Object: object, OldObject: old, Request: request,
		Namespace: namespace(named.GetNamespace(), map[string]string{"tier": "gold"}),
	}
}

// stored is object as the reconciler finds it.
func stored(object *unstructured.Unstructured) policies.Input {
	return policies.Input{Object: object, Namespace: namespace(object.GetNamespace(), map[string]string{"tier": "gold"})}
}

// said are the texts of violations.
func said(violations []policies.Violation) []string {
	var texts []string
	for _, v := range violations {
		texts = append(texts, v.Field+": "+v.String())
	}
	return texts
}
