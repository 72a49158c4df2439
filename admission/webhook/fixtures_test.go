package webhook

import (
	"encoding/json"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

// rules refuse the label team: other at every operation, warn about the label team: old, audit every object, want a label
// of the namespace, and fill in the account.
const rules = `
- metadata: {name: account}
  spec:
    mutations:
    - patchType: ApplyConfiguration
      applyConfiguration: {expression: "Object{spec: Object.spec{serviceAccountName: 'deployer'}}"}
- metadata: {name: every}
  spec:
    validationActions: [Audit]
    matchConstraints: {operations: [CREATE]}
    validations:
    - {name: object, expression: 'false', message: recorded, fieldPath: metadata.name}
- metadata: {name: namespace}
  spec:
    validations:
    - name: open
      expression: namespaceObject.metadata.?labels.?open.orValue('') == 'true'
      message: closed
      fieldPath: metadata.namespace
- metadata: {name: team}
  spec:
    matchConstraints: {operations: [CREATE, UPDATE, DELETE]}
    validations:
    - name: other
      expression: "(request.operation == 'DELETE' ? oldObject : object).metadata.?labels.?team.orValue('') != 'other'"
      message: not yours
      fieldPath: metadata.labels
- metadata: {name: teams}
  spec:
    validationActions: [Warn]
    validations:
    - name: old
      expression: object.metadata.?labels.?team.orValue('') != 'old'
      message: gone soon
      fieldPath: metadata.labels
`

// compile makes a policy set of YAML.
func compile(t *testing.T, text string) *policies.Set {
	t.Helper()
	var list []v1alpha1.StageSetPolicy
	if err := yaml.UnmarshalStrict([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	set, err := policies.Compile(t.Context(), list, policies.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// newStageSets admits by rules, in namespaces that the API server knows and the cache does not.
func newStageSets(t *testing.T) *StageSets {
	t.Helper()
	set := compile(t, rules)
	now := metav1.Now()
	return &StageSets{
		Policies: func() Policies { return set },
		Namespaces: Namespaces{
			Cache: newReader(t),
			Live: newReader(t, newNamespace(metav1.ObjectMeta{Name: "open", Labels: map[string]string{"open": "true"}}),
				newNamespace(metav1.ObjectMeta{Name: "closed"}),
				newNamespace(metav1.ObjectMeta{Name: "dying", DeletionTimestamp: &now, Finalizers: []string{"a/b"}})),
		},
	}
}

func newNamespace(metadata metav1.ObjectMeta) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metadata}
}

func newReader(t testing.TB, objects ...client.Object) client.Reader {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

// stageSet is a StageSet called app made from YAML of what it has besides a name.
func stageSet(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	if object.Object == nil {
		object.Object = map[string]any{}
	}
	object.SetAPIVersion("stages.metio.wtf/v1")
	object.SetKind("StageSet")
	object.SetName("app")
	return object
}

// newRequest is a CREATE without an old object, a DELETE without a new one, and else an UPDATE.
func newRequest(t testing.TB, namespace string, old, object *unstructured.Unstructured) admission.Request {
	t.Helper()
	operation := admissionv1.Update
	switch {
	case old == nil:
		operation = admissionv1.Create
	case object == nil:
		operation = admissionv1.Delete
	}
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID:       "1",
		Kind:      metav1.GroupVersionKind{Group: "stages.metio.wtf", Version: "v1", Kind: "StageSet"},
		Operation: operation, Name: "app", Namespace: namespace, DryRun: ptr.To(false),
		Object: encode(t, object), OldObject: encode(t, old),
	}}
}

func encode(t testing.TB, object *unstructured.Unstructured) runtime.RawExtension {
	t.Helper()
	if object == nil {
		return runtime.RawExtension{}
	}
	content, err := json.Marshal(object.Object)
	if err != nil {
		t.Fatal(err)
	}
	return runtime.RawExtension{Raw: content}
}
