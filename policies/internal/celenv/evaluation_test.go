package celenv_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"

	"github.com/stageset/stageset/policies/internal/celenv"
)

var stageSet = map[string]any{
	"metadata": map[string]any{"name": "app", "namespace": "team-a", "labels": map[string]any{"team": "a"}},
	"spec": map[string]any{
		"suspend":  true,
		"interval": "10m",
		"stages":   []any{map[string]any{"name": "web"}, map[string]any{"name": "jobs"}},
	},
}

func create() celenv.Values {
	return celenv.Values{
		Request: &admissionv1.AdmissionRequest{
			Operation: admissionv1.Create,
			Name:      "app",
			Namespace: "team-a",
			DryRun:    ptr.To(false),
			UserInfo:  authenticationv1.UserInfo{Username: "joe", Groups: []string{"devs"}},
			Options:   runtime.RawExtension{Raw: []byte(`{"fieldManager":"kubectl"}`)},
			Object:    runtime.RawExtension{Raw: []byte(`{"secret":true}`)},
		},
		Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", Labels: map[string]string{"tier": "gold"}}},
		Tenant:    true,
	}
}

// evaluation is an expression with what it is evaluated on.
type evaluation struct {
	text           string
	variables      []celenv.Definition
	params         map[string]any
	object, former map[string]any
	values         celenv.Values
}

func (e evaluation) compile(t testing.TB, result celenv.Result) (*celenv.Expression, *celenv.Scope) {
	t.Helper()
	compiler, variables, broken := newCompiler(t, celenv.Stored).CompileVariables(e.variables)
	if len(broken) > 0 {
		t.Fatal(broken)
	}
	expression, err := compiler.Compile(e.text, result)
	if err != nil {
		t.Fatal(err)
	}
	group := celenv.NewEvaluation(t.Context(), e.values, 1).Group(variables, e.params)
	return expression, group.Scope(t.Context(), e.object, e.former)
}

func TestBool(t *testing.T) {
	for text, want := range map[string]bool{
		"object.spec.stages.size() == 2":                                          true,
		"object.spec.stages.exists(s, s.name == 'none')":                          false,
		"oldObject == null":                                                       true,
		"has(object.spec.kubeConfig)":                                             false,
		"object.metadata.labels['team'] == 'a'":                                   true,
		"request.operation == 'CREATE' && request.name == 'app'":                  true,
		"request.userInfo.username == 'joe' && 'devs' in request.userInfo.groups": true,
		"request.options.fieldManager == 'kubectl'":                               true,
		"!has(request.dryRun) || !request.dryRun":                                 true,
		"namespaceObject.metadata.labels['tier'] == 'gold'":                       true,
		"params.limit == 3":                                                       true,
		"tenant":                                                                  true,
		"variables.names == ['web', 'jobs']":                                      true,
		"variables.count == 2":                                                    true,
		"dyn(request).object == null":                                             true,
		"quantity('1Gi').isGreaterThan(quantity('1Mi'))":                          true,
		"object.spec.interval.matches('^[0-9]+m$')":                               true,
		"duration(object.spec.interval) >= duration('30s')":                       true,
		"object.spec.?nothing.orValue('x') == 'x'":                                true,
		"[1, 2, 3].transformList(i, v, v * 2) == [2, 4, 6]":                       true,
	} {
		t.Run(text, func(t *testing.T) {
			e := evaluation{
				text: text, object: stageSet, values: create(), params: map[string]any{"limit": int64(3)},
				variables: []celenv.Definition{
					{Name: "names", Expression: "object.spec.stages.map(s, s.name)"},
					{Name: "count", Expression: "variables.names.size()"},
				},
			}
			expression, scope := e.compile(t, celenv.Bool)
			got, err := expression.Bool(scope)
			if err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("got %t, want %t", got, want)
			}
		})
	}
}

// TestErrors: what cannot be evaluated says what it read and why that is not there (P-04, P-05).
func TestErrors(t *testing.T) {
	remove := celenv.Values{Request: &admissionv1.AdmissionRequest{Operation: admissionv1.Delete}}
	for name, test := range map[string]struct {
		evaluation
		want string
	}{
		"a field that is not set": {
			evaluation: evaluation{text: "object.spec.serviceAccountName == ''", object: stageSet, values: create()},
			want:       "reads object.spec.serviceAccountName, but serviceAccountName is not set (guard it with has() or .?)",
		},
		"a field of an item": {
			evaluation: evaluation{text: "object.spec.stages.all(s, s.path == '')", object: stageSet, values: create()},
			want:       "reads s.path, but path is not set (guard it with has() or .?)",
		},
		"an index": {
			evaluation: evaluation{text: "object.spec.stages[2].name == ''", object: stageSet, values: create()},
			want:       "reads object.spec.stages[2].name: index out of bounds: 2",
		},
		"object of a DELETE": {
			evaluation: evaluation{text: "object.spec.suspend == true", former: stageSet, values: remove},
			want:       "reads object.spec.suspend, but this is a DELETE: object is null, use oldObject",
		},
		"oldObject of a CREATE": {
			evaluation: evaluation{text: "oldObject.spec == object.spec", object: stageSet, values: create()},
			want:       "reads oldObject.spec, but this is a CREATE: oldObject is null",
		},
		"no Namespace": {
			evaluation: evaluation{text: "namespaceObject.metadata.labels['a'] == 'b'", former: stageSet, values: remove},
			want:       `reads namespaceObject.metadata.labels["a"], but the Namespace could not be read`,
		},
		"no params": {
			evaluation: evaluation{text: "params.limit == 3", former: stageSet, values: remove},
			want:       "reads params.limit, but params is null",
		},
		"no authorizer": {
			evaluation: evaluation{text: "authorizer.path('/').check('get').allowed()", former: stageSet, values: remove},
			want:       "reads authorizer, but there is no authorizer to ask here",
		},
		"an operator that does not fit": {
			evaluation: evaluation{text: "object.spec.interval < 3", object: stageSet, values: create()},
			want:       "reads object.spec.interval < 3: no such overload",
		},
		"a variable": {
			evaluation: evaluation{
				text: "variables.b", object: stageSet, values: create(),
				variables: []celenv.Definition{
					{Name: "a", Expression: "object.spec.path"},
					{Name: "b", Expression: "variables.a == ''"},
				},
			},
			want: "variables.a reads object.spec.path, but path is not set (guard it with has() or .?)",
		},
		"an expression that is long": {
			evaluation: evaluation{text: "object." + strings.Repeat("x", 300) + " == 1", object: stageSet, values: create()},
			want: "reads object." + strings.Repeat("x", 190) + "…, but " + strings.Repeat("x", 300) +
				" is not set (guard it with has() or .?)",
		},
		"division": {
			evaluation: evaluation{text: "1 / object.spec.stages.map(s, 0)[0] == 1", object: stageSet, values: create()},
			want:       "fails: division by zero",
		},
	} {
		t.Run(name, func(t *testing.T) {
			expression, scope := test.compile(t, celenv.Bool)
			_, err := expression.Bool(scope)
			var got *celenv.EvalError
			if !errors.As(err, &got) {
				t.Fatalf("the error is %v, not an EvalError", err)
			}
			if diff := cmp.Diff(test.want, got.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if got.Limit {
				t.Error("it is said to be about a limit")
			}
		})
	}
}

// TestMessage: text for people is on one line, and bounded (P-03).
func TestMessage(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"newlines":   {text: `"first\n\n  second\r\nthird\n"`, want: "first; second; third"},
		"empty":      {text: "''", want: ""},
		"too long":   {text: "'" + strings.Repeat("ä", 3000) + "'", want: strings.Repeat("ä", 2558) + "…"},
		"just fits":  {text: "'" + strings.Repeat("x", 5120) + "'", want: strings.Repeat("x", 5120)},
		"from a map": {text: "object.spec.stages.map(s, s.name).join(', ')", want: "web, jobs"},
	} {
		t.Run(name, func(t *testing.T) {
			expression, scope := evaluation{text: test.text, object: stageSet, values: create()}.compile(t, celenv.String)
			got, err := expression.Message(scope)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

// TestObject: what a mutation sets is JSON, or an error that says what is not.
func TestObject(t *testing.T) {
	for name, test := range map[string]struct {
		text    string
		want    map[string]any
		wantErr string
	}{
		"fields": {
			text: "Object{spec: Object.spec{suspend: true, n: 1, f: 1.5, s: 'x', nothing: null}}",
			want: map[string]any{"spec": map[string]any{"suspend": true, "n": int64(1), "f": 1.5, "s": "x", "nothing": nil}},
		},
		"lists and maps": {
			text: "Object{spec: Object.spec{stages: [Object.spec.stages{name: 'a', labels: {'a': 'b'}}], names: ['x']}}",
			want: map[string]any{"spec": map[string]any{
				"stages": []any{map[string]any{"name": "a", "labels": map[string]any{"a": "b"}}}, "names": []any{"x"},
			}},
		},
		"parts of the object": {
			text: "Object{spec: Object.spec{stages: object.spec.stages, who: request.userInfo.groups}}",
			want: map[string]any{"spec": map[string]any{
				"stages": []any{map[string]any{"name": "web"}, map[string]any{"name": "jobs"}}, "who": []any{"devs"},
			}},
		},
		"a field that is left out": {
			text: "Object{spec: Object.spec{?suspend: optional.none()}}",
			want: map[string]any{"spec": map[string]any{}},
		},
		"a time": {
			text: "Object{spec: Object.spec{at: timestamp('2026-01-01T00:00:00Z')}}",
			wantErr: "sets a value of type google.protobuf.Timestamp, which JSON does not have: " +
				"convert it, with string() for example",
		},
		"a duration": {
			text: "Object{spec: Object.spec{interval: duration('10m')}}",
			wantErr: "sets a value of type google.protobuf.Duration, which JSON does not have: " +
				"convert it, with string() for example",
		},
		"a number that JSON does not have": {
			text:    "Object{spec: Object.spec{n: 1u}}",
			wantErr: "sets a value of type uint, which JSON does not have: convert it, with string() for example",
		},
		"the wrong type for a field": {
			text: "Object{spec: Object.status{}}",
			wantErr: `unexpected type name "Object.status", expected "Object.spec", ` +
				"which matches field name path from root Object type",
		},
		"an optional field that fails": {
			text:    "Object{spec: Object.spec{?suspend: object.spec.nothing}}",
			wantErr: "reads object.spec.nothing, but nothing is not set (guard it with has() or .?)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			expression, scope := evaluation{text: test.text, object: stageSet, values: create()}.compile(t, celenv.Object)
			got, err := expression.Object(scope)
			if diff := cmp.Diff(test.wantErr, text(err)); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPatch(t *testing.T) {
	for name, test := range map[string]struct{ text, want, wantErr string }{
		"operations": {
			text: "[JSONPatch{op: 'add', path: '/spec/x', value: {'a': 1}}, JSONPatch{op: 'move', from: '/a', path: '/b'}]",
			want: `[{"op":"add","path":"/spec/x","value":{"a":1}},{"from":"/a","op":"move","path":"/b"}]`,
		},
		"an object": {
			text: "[JSONPatch{op: 'add', path: '/spec', value: Object.spec{suspend: true}}]",
			want: `[{"op":"add","path":"/spec","value":{"suspend":true}}]`,
		},
		"null": {
			text: "[JSONPatch{op: 'add', path: '/' + jsonpatch.escapeKey('a/b'), value: null}]",
			want: `[{"op":"add","path":"/a~1b","value":null}]`,
		},
		"a value that JSON does not have": {
			text:    "[JSONPatch{op: 'add', path: '/spec/x', value: b'x'}]",
			wantErr: "sets a value of type bytes, which JSON does not have: convert it, with string() for example",
		},
	} {
		t.Run(name, func(t *testing.T) {
			expression, scope := evaluation{text: test.text, object: stageSet, values: create()}.compile(t, celenv.Patch)
			got, err := expression.Patch(scope)
			if diff := cmp.Diff(test.wantErr, text(err)); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.want, string(got)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// many is a list of n numbers.
func many(n int) map[string]any {
	list := make([]any, n)
	for i := range list {
		list[i] = int64(i)
	}
	return map[string]any{"list": list}
}

// TestCostLimit: what loops over loops, or makes much of little, is ended (P-48).
func TestCostLimit(t *testing.T) {
	doubling := []celenv.Definition{{Name: "v0", Expression: "'" + strings.Repeat("x", 1000) + "'"}}
	for i := range 60 {
		doubling = append(doubling, celenv.Definition{
			Name: fmt.Sprintf("v%d", i+1), Expression: fmt.Sprintf("variables.v%d + variables.v%d", i, i),
		})
	}
	var loops []celenv.Definition
	for i := range 60 {
		loops = append(loops, celenv.Definition{Name: fmt.Sprintf("v%d", i), Expression: "object.list.map(x, x + 1)"})
	}
	const cost = "costs more than 200000 units"
	for name, test := range map[string]struct {
		evaluation
		want string
	}{
		"quadratic": {evaluation{text: "object.list.all(a, object.list.all(b, a + b >= 0))", object: many(300)}, cost},
		"strings": {
			evaluation{text: "object.list.map(a, '" + strings.Repeat("x", 5000) + "').join().size() == 0", object: many(2000)}, cost,
		},
		"doubling": {evaluation{text: "variables.v60 == ''", variables: doubling}, "variables.v"},
		"many variables": {
			evaluation{text: join(60, "variables.v%d == []", " || "), variables: loops, object: many(1000)},
			cost,
		},
		"a regular expression": {
			evaluation{
				text:   "object.text.matches('(x+x+)+y')",
				object: map[string]any{"text": strings.Repeat("x", 1<<20)},
			},
			cost,
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.values = create()
			expression, scope := test.compile(t, celenv.Bool)
			_, err := expression.Bool(scope)
			var got *celenv.EvalError
			if !errors.As(err, &got) || !got.Limit {
				t.Fatalf("the error is %v, not about a limit", err)
			}
			if !strings.Contains(got.Error(), test.want) && !strings.Contains(got.Error(), cost) {
				t.Errorf("the error is %v, want %s", err, test.want)
			}
		})
	}
}

func join(n int, format, separator string) string {
	var parts []string
	for i := range n {
		parts = append(parts, fmt.Sprintf(format, i))
	}
	return strings.Join(parts, separator)
}

// TestRequestLimit: a group that uses up the budget of a request stops no other that stays within its share.
func TestRequestLimit(t *testing.T) {
	compiler := newCompiler(t, celenv.Stored)
	expensive, err := compiler.Compile("!object.text.contains('"+strings.Repeat("y", 100)+"')", celenv.Bool)
	if err != nil {
		t.Fatal(err)
	}
	e := celenv.NewEvaluation(t.Context(), create(), 2)
	greedy, modest := e.Group(nil, nil), e.Group(nil, nil)
	evaluations := 0
	for ; evaluations < 1000; evaluations++ {
		object := map[string]any{"text": strings.Repeat("x", 100_000)}
		if _, err = expensive.Bool(greedy.Scope(t.Context(), object, nil)); err != nil {
			break
		}
	}
	var limit *celenv.EvalError
	if !errors.As(err, &limit) || !limit.Limit || !strings.Contains(err.Error(), "more than its share") {
		t.Errorf("after %d evaluations the error is %v", evaluations, err)
	}
	if holds, err := expensive.Bool(modest.Scope(t.Context(), map[string]any{"text": "x"}, nil)); err != nil || !holds {
		t.Errorf("the other group got %t, %v", holds, err)
	}
}

// TestDeadline: an expression ends with its context, and nothing is evaluated after that (P-29).
func TestDeadline(t *testing.T) {
	expression, err := newCompiler(t, celenv.Stored).Compile("object.list.all(a, a >= 0)", celenv.Bool)
	if err != nil {
		t.Fatal(err)
	}
	for name, newContext := range map[string]func() (context.Context, context.CancelFunc){
		"over": func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), 0) },
		"passing": func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), time.Microsecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := newContext()
			defer cancel()
			group := celenv.NewEvaluation(ctx, create(), 1).Group(nil, nil)
			_, err := expression.Bool(group.Scope(ctx, many(25_000), nil))
			var limit *celenv.EvalError
			if !errors.As(err, &limit) || limit.Error() != "was not evaluated in time" {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// authorize answers every check alike, and counts them.
type authorize struct {
	answer  func(authorizer.Attributes) (authorizer.Decision, string, error)
	checked int
}

func (a *authorize) Authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	a.checked++
	return a.answer(attributes)
}

func allow(authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

// TestChecks: a check for each of many stages is possible, each is made once, and too many are an error (P-30).
func TestChecks(t *testing.T) {
	const check = "object.list.all(n, authorizer.group('').resource('serviceaccounts').name(string(n)).check('get').allowed())"
	for name, test := range map[string]struct {
		checks, want int
		wantErr      string
	}{
		"some": {checks: 64, want: 64},
		"all":  {checks: 128, want: 128},
		"too many": {checks: 129, want: 128, wantErr: "was not evaluated: the request needs more than 128 " +
			"authorizer checks, and this policy more than its share"},
	} {
		t.Run(name, func(t *testing.T) {
			asked := &authorize{answer: allow}
			values := create()
			values.Authorizer = asked
			e := evaluation{text: check + " && " + check, values: values, object: many(test.checks)}
			expression, scope := e.compile(t, celenv.Bool)
			holds, err := expression.Bool(scope)
			if diff := cmp.Diff(test.wantErr, text(err)); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if err == nil && !holds {
				t.Error("not all checks are allowed")
			}
			if asked.checked != test.want {
				t.Errorf("%d checks were made, want %d", asked.checked, test.want)
			}
		})
	}
}

// TestCheckAttributes: a check is about the one who asks, and authorizer.requestResource about what is asked for.
func TestCheckAttributes(t *testing.T) {
	var got []string
	values := create()
	values.Request.Resource = metav1.GroupVersionResource{Group: "stages.metio.wtf", Version: "v1", Resource: "stagesets"}
	values.Authorizer = &authorize{answer: func(a authorizer.Attributes) (authorizer.Decision, string, error) {
		got = append(got, fmt.Sprint(a.GetUser().GetName(), " ", a.GetUser().GetGroups(), " ", a.GetVerb(), " ", a.GetAPIGroup(),
			" ", a.GetResource(), " ", a.GetNamespace(), " ", a.GetName()))
		return authorizer.DecisionDeny, "because", nil
	}}
	e := evaluation{
		text: "authorizer.requestResource.check('approve').reason() == 'because' && " +
			"!authorizer.serviceAccount('team-a', 'deployer').group('').resource('pods').check('get').allowed()",
		values: values, object: stageSet,
	}
	expression, scope := e.compile(t, celenv.Bool)
	if holds, err := expression.Bool(scope); err != nil || !holds {
		t.Errorf("got %t, %v", holds, err)
	}
	want := []string{
		"joe [devs] approve stages.metio.wtf stagesets team-a app",
		"system:serviceaccount:team-a:deployer [system:serviceaccounts system:serviceaccounts:team-a] get  pods  ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("checks (-want +got):\n%s", diff)
	}
}

// TestPanic: whatever panics below an expression is an error of that expression.
func TestPanic(t *testing.T) {
	values := create()
	values.Authorizer = &authorize{answer: func(authorizer.Attributes) (authorizer.Decision, string, error) { panic("boom") }}
	e := evaluation{text: "authorizer.path('/').check('get').allowed()", values: values, object: stageSet}
	expression, scope := e.compile(t, celenv.Bool)
	_, err := expression.Bool(scope)
	if diff := cmp.Diff("fails: internal error: boom", text(err)); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}

// TestVariablesAreLazy: a variable that nothing reads is not evaluated, and one that is read twice is evaluated once.
func TestVariablesAreLazy(t *testing.T) {
	asked := &authorize{answer: allow}
	values := create()
	values.Authorizer = asked
	e := evaluation{
		text: "variables.checked && variables.checked", values: values, object: stageSet,
		variables: []celenv.Definition{
			{Name: "unread", Expression: "object.nothing.at.all"},
			{Name: "checked", Expression: "authorizer.path('/').check('get').allowed()"},
		},
	}
	expression, scope := e.compile(t, celenv.Bool)
	if holds, err := expression.Bool(scope); err != nil || !holds {
		t.Errorf("got %t, %v", holds, err)
	}
	if asked.checked != 1 {
		t.Errorf("%d checks were made, want 1", asked.checked)
	}
}

// TestConcurrentEvaluation: one expression is evaluated by many at once; run with -race.
func TestConcurrentEvaluation(t *testing.T) {
	compiler, variables, broken := newCompiler(t, celenv.Stored).CompileVariables([]celenv.Definition{
		{Name: "names", Expression: "object.spec.stages.map(s, s.name)"},
	})
	if len(broken) > 0 {
		t.Fatal(broken)
	}
	expression, err := compiler.Compile("'web' in variables.names && request.userInfo.username == 'joe'", celenv.Bool)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for range 50 {
				group := celenv.NewEvaluation(t.Context(), create(), 1).Group(variables, nil)
				if holds, err := expression.Bool(group.Scope(t.Context(), stageSet, nil)); err != nil || !holds {
					t.Errorf("got %t, %v", holds, err)
				}
			}
		})
	}
	running.Wait()
}
