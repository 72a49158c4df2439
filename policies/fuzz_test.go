package policies_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

// FuzzPolicy: whatever text is compiled and whatever it is evaluated on, there is a decision in time, the input is not
// changed, and a rule that does not compile never lets anything pass.
func FuzzPolicy(f *testing.F) {
	const object = `{"metadata":{"name":"app","namespace":"a"},"spec":{"stages":[{"name":"web","sourceRef":{"name":"x"}}]}}`
	for _, expression := range []string{
		"true", "tenant", "object.spec.stages.all(s, s.name != '')", "variables.v", "oldObject == null && variables.v",
		"Object{spec: Object.spec{interval: '1m'}}", "[JSONPatch{op: 'add', path: '/spec/suspend', value: true}]",
		"[1,2,3].all(a, [1,2,3].all(b, a > b))", "'x'.matches('(x+)+')", "request.userInfo.username + params.x",
		"object.metadata.annotations['a'].split(',').map(x, int(x)).sum() > 0", "{'a': {'b': 1}}.a.b / 0 == 1",
		"object.spec['stages'][0]", "\"\\n\"", "timestamp('x')", "dyn(variables).v", "....", "a(b(c(", "!!!!!!!!true",
		"optional.none()", "quantity('1Gi') < 1", "x.y.z{}", "has(object.?spec.a)",
	} {
		f.Add(expression, "object.spec.suspend", object)
	}
	const claiming = `{"metadata":{"namespace":"a","annotations":{"stages.metio.wtf/defaulted-by":"spec.a=b"}},"spec":1}`
	f.Add("true", "variables.v", claiming)
	f.Fuzz(func(t *testing.T, expression, variable, object string) {
		mutation := &v1alpha1.MutationExpression{Expression: expression}
		list := []v1alpha1.StageSetPolicy{{
			ObjectMeta: metav1.ObjectMeta{Name: "p"},
			Spec: v1alpha1.StageSetPolicySpec{
				Variables: []v1alpha1.Variable{{Name: "v", Expression: variable}},
				Mutations: []v1alpha1.Mutation{
					{PatchType: v1alpha1.PatchTypeApplyConfiguration, ApplyConfiguration: mutation},
					{PatchType: v1alpha1.PatchTypeJSONPatch, JSONPatch: mutation},
					{PatchType: v1alpha1.PatchTypeApplyConfiguration, ApplyConfiguration: mutation, Override: true},
					{PatchType: v1alpha1.PatchTypeJSONPatch, JSONPatch: mutation, Override: true},
				},
				Validations: []v1alpha1.Validation{
					{Name: "r", Message: "m", Expression: expression, MessageExpression: expression},
				},
				AuditAnnotations: []v1alpha1.AuditAnnotation{{Key: "a", ValueExpression: expression}},
			},
		}}
		var fields map[string]any
		if err := utiljson.Unmarshal([]byte(object), &fields); err != nil || fields == nil {
			return
		}
		const timeout = 200 * time.Millisecond
		compiling := time.Now()
		set, problems := policies.Compile(t.Context(), list, policies.Options{Timeout: timeout})
		if took := time.Since(compiling); took > 20*timeout {
			t.Errorf("compiling took %s", took)
		}
		in := policies.Input{
			Object:  &unstructured.Unstructured{Object: fields},
			Request: policies.NewRequest(admissionv1.Create, "a", "app"),
		}
		before := in.Object.DeepCopy()
		started := time.Now()
		defaulted, _ := set.Default(t.Context(), in)
		if defaulted == nil {
			t.Fatal("there is no object")
		}
		decision := set.Validate(t.Context(), in)
		// A loaded machine is slow to notice a deadline; an evaluation without one would not end.
		if took := time.Since(started); took > 20*timeout {
			t.Errorf("it took %s", took)
		}
		if !equality.Semantic.DeepEqual(before, in.Object) {
			t.Error("the object was changed")
		}
		if broken(problems) && len(decision.Denied) == 0 {
			t.Error("a rule that does not compile lets pass")
		}
		sound(t, decision)
	})
}

// sound checks that nothing has panicked, not even where that is caught, and that nothing is left running.
func sound(t *testing.T, decisions ...policies.Decision) {
	t.Helper()
	for _, decision := range decisions {
		for _, failed := range decision.Failed {
			if strings.Contains(failed.Message, "panicked: ") {
				t.Error(failed)
			}
		}
	}
	// The tests around have some; what leaves one running in each run has more, soon.
	if n := runtime.NumGoroutine(); n > 200 {
		t.Errorf("%d goroutines are running", n)
	}
}

// TestNothingIsKept: what policies were checked, compiled and evaluated leaves nothing behind: whoever can try out policies
// with a dry run fills no memory (P-48).
func TestNothingIsKept(t *testing.T) {
	in := creating(stageSet(t, ""))
	try := func(from, to int) {
		for i := from; i < to; i++ {
			variable := fmt.Sprintf("variables: [{name: v, expression: \"'v%d'\"}]", i)
			p := rule(t, "p", fmt.Sprintf("variables.v != 'unique-%d'", i), variable)
			if _, err := policies.Check(t.Context(), &p, policies.CheckOptions{}); err != nil {
				t.Fatal(err)
			}
			compile(t, p).Validate(t.Context(), in)
		}
	}
	try(0, 10) // what is built once
	before := heap()
	const n, most = 100, 20 << 10
	try(10, 10+n)
	if each := (heap() - before) / n; each > most {
		t.Errorf("each leaves %d bytes behind", each)
	}
}

// FuzzRelease: the same for policies about sources and objects, with parameters, and for what is checked before.
func FuzzRelease(f *testing.F) {
	const object = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"a":"b"}},"data":{"a":"b"}}`
	for _, expression := range []string{
		"true", "source.verified", "object.data.a == params.data.a", "stage.name == source.name", "target.remote && tenant",
		"stageSet.spec.stages.all(s, s.name == stage.name)", "source.nothing", "target == source", "request.name", "authorizer",
		"object.metadata.labels.all(k, object.metadata.labels[k] == k)", "dyn(source).x", "variables.v", "params",
	} {
		f.Add(expression, "object.data", object)
	}
	f.Fuzz(func(t *testing.T, expression, variable, object string) {
		var fields map[string]any
		if err := utiljson.Unmarshal([]byte(object), &fields); err != nil || fields == nil {
			return
		}
		const timeout = 200 * time.Millisecond
		in := policies.ManifestInput{
			SourceInput: policies.SourceInput{StageSet: &unstructured.Unstructured{Object: fields}, Stage: "web"},
			Object:      &unstructured.Unstructured{Object: fields},
		}
		for _, target := range []v1alpha1.Target{v1alpha1.TargetSource, v1alpha1.TargetManifest} {
			list := []v1alpha1.StageSetPolicy{{
				ObjectMeta: metav1.ObjectMeta{Name: "p"},
				Spec: v1alpha1.StageSetPolicySpec{
					Target:    target,
					Variables: []v1alpha1.Variable{{Name: "v", Expression: variable}},
					Validations: []v1alpha1.Validation{
						{Name: "r", Message: "m", Expression: expression, MessageExpression: expression},
					},
				},
			}}
			// What is wrong is found by Compile again; here it must only come to an end.
			started := time.Now()
			_, _ = policies.Check(t.Context(), &list[0], policies.CheckOptions{})
			options := policies.Options{Timeout: timeout, Params: map[string]map[string]any{"p": fields}}
			set, problems := policies.Compile(t.Context(), list, options)
			before := in.Object.DeepCopy()
			source, manifest := set.ValidateSource(t.Context(), in.SourceInput), set.ValidateManifest(t.Context(), in)
			if took := time.Since(started); took > 40*timeout {
				t.Errorf("it took %s", took)
			}
			if !equality.Semantic.DeepEqual(before, in.Object) {
				t.Error("the object was changed")
			}
			if broken(problems) && len(source.Denied)+len(manifest.Denied) == 0 {
				t.Error("a rule that does not compile lets pass")
			}
			sound(t, source, manifest)
		}
	})
}

// broken tells whether the rule r does not compile.
func broken(err error) bool {
	var found policies.Problems
	errors.As(err, &found)
	return slices.ContainsFunc(found, func(p policies.Problem) bool { return p.Field == "spec.validations[r].expression" })
}
