package policies_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

// sets is a policy whose mutation is an apply configuration.
func sets(t testing.TB, name, expression string) v1alpha1.StageSetPolicy {
	t.Helper()
	made := policy(t, name, "")
	made.Spec.Mutations = []v1alpha1.Mutation{{
		PatchType:          v1alpha1.PatchTypeApplyConfiguration,
		ApplyConfiguration: &v1alpha1.MutationExpression{Expression: expression},
	}}
	return made
}

// patches is a policy whose mutation is a JSON patch.
func patches(t testing.TB, name, expression string) v1alpha1.StageSetPolicy {
	t.Helper()
	made := policy(t, name, "")
	made.Spec.Mutations = []v1alpha1.Mutation{{
		PatchType: v1alpha1.PatchTypeJSONPatch,
		JSONPatch: &v1alpha1.MutationExpression{Expression: expression},
	}}
	return made
}

// TestDefault: what is unset is filled in, what is set stays, and the annotation says who set what (P-41, P-42, P-43).
func TestDefault(t *testing.T) {
	account := sets(t, "account", "Object{spec: Object.spec{serviceAccountName: 'deployer'}}")
	for name, test := range map[string]struct {
		policies         []v1alpha1.StageSetPolicy
		object           string
		want, annotation string
	}{
		"nothing to do": {object: "spec: {stages: []}", want: "spec: {stages: []}"},
		"unset": {
			policies: []v1alpha1.StageSetPolicy{account}, object: "spec: {stages: []}",
			want: "spec: {stages: [], serviceAccountName: deployer}", annotation: "spec.serviceAccountName=account",
		},
		"set": {
			policies: []v1alpha1.StageSetPolicy{account}, object: "spec: {serviceAccountName: mine}",
			want: "spec: {serviceAccountName: mine}",
		},
		"empty is unset": {
			policies: []v1alpha1.StageSetPolicy{account}, object: "spec: {serviceAccountName: ''}",
			want: "spec: {serviceAccountName: deployer}", annotation: "spec.serviceAccountName=account",
		},
		"false is set": {
			policies: []v1alpha1.StageSetPolicy{sets(t, "p", "Object{spec: Object.spec{suspend: true}}")},
			object:   "spec: {suspend: false}", want: "spec: {suspend: false}",
		},
		"each stage": {
			policies: []v1alpha1.StageSetPolicy{sets(t, "p", "Object{spec: Object.spec{stages: object.spec.stages.map(s, "+
				"Object.spec.stages{name: s.name, timeout: '5m', sourceRef: Object.spec.stages.sourceRef{kind: 'Bucket'}})}}")},
			object: "spec: {stages: [{name: b, timeout: 1m, sourceRef: {name: x}}, {name: a, sourceRef: {name: z, kind: ''}}]}",
			want: "spec: {stages: [{name: b, timeout: 1m, sourceRef: {name: x, kind: Bucket}}, " +
				"{name: a, timeout: 5m, sourceRef: {name: z, kind: Bucket}}]}",
			annotation: "spec.stages[a].sourceRef.kind=p,spec.stages[a].timeout=p,spec.stages[b].sourceRef.kind=p",
		},
		"an atomic list as a whole": {
			policies: []v1alpha1.StageSetPolicy{sets(t, "p", "Object{spec: Object.spec{stages: object.spec.stages.map(s, "+
				"Object.spec.stages{name: s.name, patches: [{'patch': 'x'}]})}}")},
			object:     "spec: {stages: [{name: b, patches: [{patch: own}]}, {name: a}]}",
			want:       "spec: {stages: [{name: b, patches: [{patch: own}]}, {name: a, patches: [{patch: x}]}]}",
			annotation: "spec.stages[a].patches=p",
		},
		"a list that is unset": {
			policies: []v1alpha1.StageSetPolicy{sets(t, "p", "Object{spec: Object.spec{dependsOn: ["+
				"Object.spec.dependsOn{name: 'x', namespace: ''}]}}")},
			object: "spec: {suspend: true}", want: "spec: {suspend: true, dependsOn: [{name: x, namespace: ''}]}",
			annotation: "spec.dependsOn[x]=p",
		},
		"labels, of which an empty one is set": {
			policies: []v1alpha1.StageSetPolicy{sets(t, "p", "Object{metadata: Object.metadata{labels: "+
				"{'a': 'x', 'b': 'x', 'c': 'x'}}}")},
			object:     "metadata: {name: app, namespace: team-a, labels: {a: '', b: own}}",
			want:       "metadata: {name: app, namespace: team-a, labels: {a: '', b: own, c: x}}",
			annotation: "metadata.labels.c=p",
		},
		"two policies, in order": {
			policies: []v1alpha1.StageSetPolicy{
				sets(t, "b", "Object{spec: Object.spec{suspend: object.spec.interval == '1m', interval: '2m'}}"),
				sets(t, "a", "Object{spec: Object.spec{interval: '1m'}}"),
			},
			object: "spec: {stages: []}", want: "spec: {stages: [], interval: 1m, suspend: true}",
			annotation: "spec.interval=a,spec.suspend=b",
		},
		"two mutations, in order": {
			policies: []v1alpha1.StageSetPolicy{policy(t, "p", `
mutations:
- {patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{spec: Object.spec{interval: '1m'}}"}}
- patchType: JSONPatch
  jsonPatch: {expression: "[JSONPatch{op: 'add', path: '/spec/retryInterval', value: object.spec.interval}]"}`)},
			object: "spec: {stages: []}", want: "spec: {stages: [], interval: 1m, retryInterval: 1m}",
			annotation: "spec.interval=p,spec.retryInterval=p",
		},
		"a patch": {
			policies: []v1alpha1.StageSetPolicy{patches(t, "p", "[JSONPatch{op: 'add', path: '/spec/suspend', value: true}, "+
				"JSONPatch{op: 'add', path: '/spec/interval', value: '1m'}]")},
			object: "spec: {interval: 2m}", want: "spec: {interval: 2m, suspend: true}", annotation: "spec.suspend=p",
		},
		"a patch that would take away": {
			policies: []v1alpha1.StageSetPolicy{patches(t, "p", "[JSONPatch{op: 'remove', path: '/spec/interval'}, "+
				"JSONPatch{op: 'replace', path: '/spec/stages', value: []}]")},
			object: "spec: {interval: 2m, stages: [{name: a}]}", want: "spec: {interval: 2m, stages: [{name: a}]}",
		},
		"a patch that is for others": {
			policies: []v1alpha1.StageSetPolicy{patches(t, "p", "[JSONPatch{op: 'test', path: '/spec/interval', value: '1m'}, "+
				"JSONPatch{op: 'add', path: '/spec/suspend', value: true}]")},
			object: "spec: {interval: 2m}", want: "spec: {interval: 2m}",
		},
		"an object that is none": {
			policies: []v1alpha1.StageSetPolicy{account}, object: "spec: {interval: 3, stages: nothing}",
			want: "spec: {interval: 3, stages: nothing}",
		},
		"a claim that is not true": {
			object: "metadata: {name: app, namespace: team-a, annotations: {stages.metio.wtf/defaulted-by: spec.interval=p, a: b}}",
			want:   "metadata: {name: app, namespace: team-a, annotations: {a: b}}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := compile(t, test.policies...)
			in := creating(stageSet(t, test.object))
			before := in.Object.DeepCopy()
			got, err := set.Default(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, in.Object); diff != "" {
				t.Errorf("the object was changed (-before +after):\n%s", diff)
			}
			want := annotated(stageSet(t, test.want), test.annotation)
			if diff := cmp.Diff(want.Object, got.Object); diff != "" {
				t.Errorf("defaulted (-want +got):\n%s", diff)
			}
			if cmp.Equal(before, got) && got != in.Object {
				t.Error("what is not changed was copied")
			}
			in.Object = got
			again, err := set.Default(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got.Object, again.Object); diff != "" {
				t.Errorf("defaulted twice (-once +twice):\n%s", diff)
			}
		})
	}
}

// annotated is object with the annotation, if it is not empty.
func annotated(object *unstructured.Unstructured, annotation string) *unstructured.Unstructured {
	if annotation == "" {
		return object
	}
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1.AnnotationDefaultedBy] = annotation
	object.SetAnnotations(annotations)
	return object
}

// TestDefaultErrors: a policy that cannot be applied sets nothing, and stops no other.
func TestDefaultErrors(t *testing.T) {
	const interval = "Object{spec: Object.spec{interval: '1m'}}"
	for name, test := range map[string]struct {
		policy v1alpha1.StageSetPolicy
		want   string
	}{
		"fails": {
			policy: sets(t, "p", "Object{spec: Object.spec{suspend: object.spec.nothing}}"),
			want: "p/mutations[0]: cannot be evaluated: reads object.spec.nothing, but nothing is not set " +
				"(guard it with has() or .?)",
		},
		"fails later": {
			policy: policy(t, "p", `
mutations:
- {patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{spec: Object.spec{suspend: true}}"}}
- {patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{spec: Object.spec{nothing: true}}"}}`),
			want: "p/mutations[1]: sets what a StageSet cannot have: .spec.nothing: field not declared in schema",
		},
		"fails, and that is ignored": {
			policy: policy(t, "p", `
failurePolicy: Ignore
mutations:
- {patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{spec: Object.spec{nothing: true}}"}}`),
		},
		"the status": {
			policy: sets(t, "p", "Object{status: Object.status{revision: 'x'}}"),
			want:   "p/mutations[0]: sets status: only spec, labels and annotations can be filled in",
		},
		"an owner": {
			policy: patches(t, "p", "[JSONPatch{op: 'add', path: '/metadata/ownerReferences', value: []}, "+
				"JSONPatch{op: 'add', path: '/metadata/generateName', value: 'x'}]"),
			want: "p/mutations[0]: sets metadata.generateName: only spec, labels and annotations can be filled in",
		},
		"another stage": {
			policy: sets(t, "p", "Object{spec: Object.spec{stages: [Object.spec.stages{name: 'x'}]}}"),
			want:   "p/mutations[0]: adds spec.stages[x]: items are not added to a list that has some",
		},
		"the wrong type": {
			policy: sets(t, "p", "Object{spec: Object.spec{suspend: 'yes'}}"),
			want:   "p/mutations[0]: sets what a StageSet cannot have: .spec.suspend: expected boolean",
		},
		"a patch to nowhere": {
			policy: patches(t, "p", "[JSONPatch{op: 'replace', path: '/spec/a/b', value: 1}]"),
			want: "p/mutations[0]: sets a patch that cannot be applied: replace operation does not apply: doc is missing path: " +
				"/spec/a/b: missing value",
		},
		"a patch that is none": {
			policy: patches(t, "p", "[JSONPatch{op: 'frobnicate', path: '/spec'}]"),
			want: "p/mutations[0]: sets a patch that is not valid: invalid operation " +
				`{"op":"frobnicate","path":"/spec"}: unsupported operation`,
		},
		"a condition that fails": {
			policy: policy(t, "p", `
matchConditions: [{name: c, expression: "object.spec.suspend == true"}]
mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{}"}}]`),
			want: "p/c: match condition cannot be evaluated: reads object.spec.suspend, but suspend is not set " +
				"(guard it with has() or .?)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := compile(t, test.policy, sets(t, "z", interval))
			got, err := set.Default(t.Context(), creating(stageSet(t, "")))
			message := ""
			if err != nil {
				message = err.Error()
			}
			if diff := cmp.Diff(test.want, message); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			want := stageSet(t, "spec: {stages: [{name: web, sourceRef: {name: app}}], interval: 1m}")
			if diff := cmp.Diff(annotated(want, "spec.interval=z").Object, got.Object); diff != "" {
				t.Errorf("defaulted (-want +got):\n%s", diff)
			}
		})
	}
}

// TestProvenance: the annotation says what is true, whoever wrote it: it comes back with every update.
func TestProvenance(t *testing.T) {
	const (
		claimed   = "metadata: {name: app, namespace: team-a, annotations: {stages.metio.wtf/defaulted-by: spec.interval=p}}\n"
		unclaimed = ""
	)
	for name, test := range map[string]struct {
		old, object string
		want        string
	}{
		"called again on the same object":         {object: claimed + "spec: {interval: 1m}", want: "spec.interval=p"},
		"forged on creation":                      {object: claimed + "spec: {interval: 5m}"},
		"the author's own, that happens to be it": {object: unclaimed + "spec: {interval: 1m}"},
		"an update that changes nothing": {
			old: claimed + "spec: {interval: 9m}", object: claimed + "spec: {interval: 9m}", want: "spec.interval=p",
		},
		"an update by its author": {old: claimed + "spec: {interval: 1m}", object: claimed + "spec: {interval: 5m}"},
		"an update that takes it away": {
			old: claimed + "spec: {interval: 9m}", object: unclaimed + "spec: {suspend: true}", want: "spec.interval=p",
		},
		"an update that forges": {old: unclaimed + "spec: {interval: 5m}", object: claimed + "spec: {interval: 5m}"},
		"an update that forges what would be filled in": {
			old: unclaimed + "spec: {suspend: true}", object: claimed + "spec: {suspend: true}",
		},
		"called again after an update that took the field out": {
			old: "spec: {interval: 1m}", object: claimed + "spec: {interval: 1m}", want: "spec.interval=p",
		},
		"an update that takes nothing but it away": {
			old: claimed + "spec: {interval: 9m}", object: unclaimed + "spec: {interval: 9m}", want: "spec.interval=p",
		},
		"a field that is gone": {
			object: "metadata: {name: app, namespace: team-a, annotations: {stages.metio.wtf/defaulted-by: " +
				"'spec.nothing=p,spec.interval=q,,=,spec.stages[a'}}\nspec: {interval: 1m}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := compile(t, sets(t, "p", "Object{spec: Object.spec{interval: '1m'}}"))
			in := creating(stageSet(t, test.object))
			if test.old != "" {
				in = updating(stageSet(t, test.object), stageSet(t, test.old))
			}
			got, err := set.Default(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got.GetAnnotations()[v1.AnnotationDefaultedBy]); diff != "" {
				t.Errorf("annotation (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDefaultOfMetadata: an update that leaves the spec alone gets the labels that policies set, and keeps its spec.
func TestDefaultOfMetadata(t *testing.T) {
	const both = "Object{metadata: Object.metadata{labels: {'tier': namespaceObject.metadata.labels.tier}}, " +
		"spec: Object.spec{interval: '1m'}}"
	spec := stageSet(t, "").Object["spec"]
	for name, test := range map[string]struct {
		policy v1alpha1.StageSetPolicy
		labels string
		want   string // the label tier afterwards
		filled string // the annotation
	}{
		"what is unset":         {sets(t, "p", both), "{a: b}", "gold", "metadata.labels.tier=p"},
		"what is set":           {sets(t, "p", both), "{tier: iron}", "iron", ""},
		"what is set, override": {overriding(sets(t, "p", both)), "{tier: iron}", "gold", "metadata.labels.tier=p"},
		"by a patch, override": {
			overriding(patches(t, "p", "[JSONPatch{op: 'add', path: '/metadata/labels/tier', value: 'gold'}, "+
				"JSONPatch{op: 'replace', path: '/spec/stages/0/name', value: 'x'}]")),
			"{tier: iron}", "gold", "metadata.labels.tier=p",
		},
		"nothing but the spec": {sets(t, "p", "Object{spec: Object.spec{interval: '1m'}}"), "{a: b}", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			object := stageSet(t, "metadata: {name: app, namespace: team-a, labels: "+test.labels+"}")
			got, err := compile(t, test.policy).Default(t.Context(), updating(object, stageSet(t, "")))
			if err != nil {
				t.Fatal(err)
			}
			if got.GetLabels()["tier"] != test.want || got.GetAnnotations()[v1.AnnotationDefaultedBy] != test.filled {
				t.Errorf("labels %v, filled in: %v", got.GetLabels(), got.GetAnnotations())
			}
			if diff := cmp.Diff(spec, got.Object["spec"]); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDefaultAdmissionOnly: what asks who requests fills in nothing for a stored StageSet.
func TestDefaultAdmissionOnly(t *testing.T) {
	set := compile(t,
		sets(t, "a", "Object{metadata: Object.metadata{labels: {'by': request.userInfo.username}}}"),
		sets(t, "b", "Object{spec: Object.spec{suspend: true}}"),
	)
	for name, test := range map[string]struct {
		in   policies.Input
		want string
	}{
		"request": {creating(stageSet(t, "")), "metadata.labels.by=a,spec.suspend=b"},
		"stored":  {stored(stageSet(t, "")), "spec.suspend=b"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := set.Default(t.Context(), test.in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got.GetAnnotations()[v1.AnnotationDefaultedBy]); diff != "" {
				t.Errorf("annotation (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDefaultTyped: the reconciler gives what it read, as a Go type has it.
func TestDefaultTyped(t *testing.T) {
	set := compile(t, sets(t, "p", "Object{spec: Object.spec{serviceAccountName: 'deployer'}}"))
	typed := &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Name: "app", Namespace: "team-a", Finalizers: []string{v1.Finalizer}}}
	typed.Spec.Stages = []v1.Stage{{Name: "web", SourceRef: v1.SourceReference{Name: "app"}}}
	typed.Spec.Timeout = &metav1.Duration{Duration: time.Minute}
	typed.Status.Conditions = []metav1.Condition{{Type: v1.ConditionReady, Status: metav1.ConditionTrue}}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{Object: fields}
	object.SetGroupVersionKind(v1.GroupVersion.WithKind("StageSet"))
	defaulted, err := set.Default(t.Context(), stored(object))
	if err != nil {
		t.Fatal(err)
	}
	got := &v1.StageSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(defaulted.Object, got); err != nil {
		t.Fatal(err)
	}
	want := typed.DeepCopy()
	want.TypeMeta = metav1.TypeMeta{APIVersion: "stages.metio.wtf/v1", Kind: "StageSet"}
	want.Spec.ServiceAccountName = "deployer"
	want.Annotations = map[string]string{v1.AnnotationDefaultedBy: "spec.serviceAccountName=p"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("defaulted (-want +got):\n%s", diff)
	}
}

// TestDefaultWithoutObject: a DELETE has nothing to default.
func TestDefaultWithoutObject(t *testing.T) {
	set := compile(t, sets(t, "p", "Object{}"))
	got, err := set.Default(t.Context(), requesting("DELETE", nil, stageSet(t, "")))
	if got != nil || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

// TestPatchGrowth: a patch cannot make a small object a huge one.
func TestPatchGrowth(t *testing.T) {
	operations := []string{"JSONPatch{op: 'add', path: '/spec/a', value: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}"}
	for range 30 {
		operations = append(operations, "JSONPatch{op: 'copy', from: '/spec/a', path: '/spec/a/-'}")
	}
	set := compile(t, patches(t, "p", "["+strings.Join(operations, ", ")+"]"))
	_, err := set.Default(t.Context(), creating(stageSet(t, "")))
	if err == nil || !strings.Contains(err.Error(), "exceeding the limit 1048576") {
		t.Errorf("the error is %v", err)
	}
}
