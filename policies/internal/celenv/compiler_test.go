package celenv_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stageset/stageset/policies/internal/celenv"
	"github.com/stageset/stageset/policies/internal/schema"
)

func newCompiler(t testing.TB, text celenv.Text) *celenv.Compiler {
	t.Helper()
	compiler, err := celenv.NewCompiler(text, celenv.StageSet)
	if err != nil {
		t.Fatal(err)
	}
	return compiler
}

func newTypedCompiler(t testing.TB) *celenv.Compiler {
	t.Helper()
	schemas, err := schema.Schemas()
	if err != nil {
		t.Fatal(err)
	}
	compiler, err := celenv.NewTypedCompiler(celenv.New, celenv.StageSet, schemas, schema.StageSet)
	if err != nil {
		t.Fatal(err)
	}
	return compiler
}

// TestCompileIssues: text that is wrong is refused, with where and what.
func TestCompileIssues(t *testing.T) {
	for name, test := range map[string]struct {
		text   string
		result celenv.Result
		want   celenv.Issues
	}{
		"empty": {text: " \n", want: celenv.Issues{{Message: "is empty"}}},
		"syntax": {
			text: "true &&\n  (false", want: celenv.Issues{
				{Line: 2, Column: 9, Message: "Syntax error: missing ')' at '<EOF>'"},
			},
		},
		"unknown variable": {
			text: "nobody == 1", want: celenv.Issues{
				{Line: 1, Column: 1, Message: "undeclared reference to 'nobody'"},
			},
		},
		"a field that request does not have": {
			text: "request.object.spec.suspend == true", want: celenv.Issues{
				{Line: 1, Column: 8, Message: "undefined field 'object'"},
			},
		},
		"all mistakes at once": {
			text: "nobody == 1 &&\nnothing == 2", want: celenv.Issues{
				{Line: 1, Column: 1, Message: "undeclared reference to 'nobody'"},
				{Line: 2, Column: 1, Message: "undeclared reference to 'nothing'"},
			},
		},
		"not a bool": {text: "'yes'", want: celenv.Issues{{Message: "evaluates to string, not to bool"}}},
		"a bool that is not known to be one": {
			text: "object.spec.suspend", want: celenv.Issues{{Message: "evaluates to dyn, not to bool"}},
		},
		"not a string": {
			text: "1", result: celenv.String, want: celenv.Issues{{Message: "evaluates to int, not to string"}},
		},
		"not an object": {
			text: "{'spec': 1}", result: celenv.Object,
			want: celenv.Issues{{Message: "evaluates to map(string, int), not to Object"}},
		},
		"not a patch": {
			text: "['add']", result: celenv.Patch,
			want: celenv.Issues{{Message: "evaluates to list(string), not to list of JSONPatch"}},
		},
		"objects are for mutations": {
			text: "Object{} == Object{}",
			want: celenv.Issues{{Line: 1, Column: 7, Message: "undeclared reference to 'Object'"},
				{Line: 1, Column: 19, Message: "undeclared reference to 'Object'"}},
		},
		"an invalid regular expression": {
			text: "request.name.matches('(')",
			want: celenv.Issues{{Line: 1, Column: 22, Message: "invalid matches argument"}},
		},
		"variables where there are none": {
			text: "variables.a == 1",
			want: celenv.Issues{{Line: 1, Column: 1, Message: "undeclared reference to 'variables'"}},
		},
		"too long": {
			text: "'" + strings.Repeat("x", celenv.MaxExpressionLength) + "' == ''",
			want: celenv.Issues{{Message: "is 10248 bytes long, more than 10240"}},
		},
		"too deep": {
			text: strings.Repeat("(", 1000) + "true" + strings.Repeat(")", 1000),
			want: celenv.Issues{{Message: "expression recursion limit exceeded: 250"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newCompiler(t, celenv.New).Compile(test.text, test.result)
			var got celenv.Issues
			if !errors.As(err, &got) {
				t.Fatalf("the error is %v, not Issues", err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("issues (-want +got):\n%s", diff)
			}
		})
	}
}

// TestText: what the newest Kubernetes added compiles only as stored text, so that it can be taken back.
func TestText(t *testing.T) {
	const newest = "[1, 2].includes(1)"
	if _, err := newCompiler(t, celenv.Stored).Compile(newest, celenv.Bool); err != nil {
		t.Errorf("stored text: %v", err)
	}
	if _, err := newCompiler(t, celenv.New).Compile(newest, celenv.Bool); err == nil {
		t.Error("new text compiles, which the previous version of Kubernetes does not know")
	}
}

// TestTypedCompiler: with the schema, a wrong field or type is found without evaluating anything (P-10).
func TestTypedCompiler(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want celenv.Issues
	}{
		"a field of the spec":     {text: "object.spec.stages.all(s, s.sourceRef.name != '')"},
		"labels":                  {text: "object.metadata.labels['team'] == oldObject.metadata.labels['team']"},
		"a field that is a bool":  {text: "object.spec.suspend"},
		"optional fields":         {text: "object.spec.?serviceAccountName.orValue('') != ''"},
		"the variable tenant":     {text: "tenant || request.namespace == namespaceObject.metadata.name"},
		"the requested resource":  {text: "authorizer.requestResource.check('approve').allowed()"},
		"parameters are anything": {text: "params.allowed.exists(a, a == object.spec.serviceAccountName)"},
		"a field that is misspelt": {
			text: "object.spec.srvAccountName == ''",
			want: celenv.Issues{{Line: 1, Column: 12, Message: "undefined field 'srvAccountName'"}},
		},
		"a field of an item that is misspelt": {
			text: "object.spec.stages.all(s, s.source.name != '')",
			want: celenv.Issues{{Line: 1, Column: 28, Message: "undefined field 'source'"}},
		},
		"the old object": {
			text: "oldObject.spec.nothing == 1",
			want: celenv.Issues{{Line: 1, Column: 15, Message: "undefined field 'nothing'"}},
		},
		"the wrong type": {
			text: "object.spec.suspend == 'yes'",
			want: celenv.Issues{
				{Line: 1, Column: 21, Message: "found no matching overload for '_==_' applied to '(bool, string)'"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newTypedCompiler(t).Compile(test.text, celenv.Bool)
			var got celenv.Issues
			errors.As(err, &got)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("issues (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTypedVariables: a variable has the type of its expression, so that mistakes are found behind it too.
func TestTypedVariables(t *testing.T) {
	compiler, _, broken := newTypedCompiler(t).CompileVariables([]celenv.Definition{
		{Name: "stages", Expression: "object.spec.stages"},
		{Name: "first", Expression: "variables.stages[0]"},
	})
	if len(broken) > 0 {
		t.Fatal(broken)
	}
	if _, err := compiler.Compile("variables.first.sourceRef.name == 'app'", celenv.Bool); err != nil {
		t.Error(err)
	}
	_, err := compiler.Compile("variables.first.source == 'app'", celenv.Bool)
	want := celenv.Issues{{Line: 1, Column: 16, Message: "undefined field 'source'"}}
	var got celenv.Issues
	errors.As(err, &got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("issues (-want +got):\n%s", diff)
	}
}

// TestVariableIssues: each variable that is wrong is reported, and those after it are still compiled.
func TestVariableIssues(t *testing.T) {
	compiler, _, broken := newCompiler(t, celenv.New).CompileVariables([]celenv.Definition{
		{Name: "wrong", Expression: "nobody"},
		{Name: "early", Expression: "variables.late"},
		{Name: "late", Expression: "1"},
		{Name: "late", Expression: "variables.late + 1"},
		{Name: "behind", Expression: "variables.wrong == 1"},
	})
	want := map[string]error{
		"wrong": celenv.Issues{{Line: 1, Column: 1, Message: "undeclared reference to 'nobody'"}},
		"early": celenv.Issues{{Line: 1, Column: 10, Message: "undefined field 'late'"}},
		"late":  celenv.Issues{{Message: "is defined twice"}},
	}
	if diff := cmp.Diff(want, broken); diff != "" {
		t.Errorf("issues (-want +got):\n%s", diff)
	}
	if _, err := compiler.Compile("variables.behind", celenv.Bool); err != nil {
		t.Error(err)
	}
}

// TestNeedsRequest: what reads who asks is found in the text, however it is written.
func TestNeedsRequest(t *testing.T) {
	for text, want := range map[string]bool{
		"request.operation == 'CREATE' && request.dryRun":            false,
		"request.namespace == request.name":                          false,
		"request.kind.kind == request.requestKind.kind":              false,
		"request.?name.orValue('') == ''":                            false,
		"object.request.userInfo == 1":                               false,
		"[object].all(request, request.userInfo == 1)":               false,
		"['authorizer'].exists(a, a == 'authorizer')":                false,
		"variables.innocent":                                         false,
		"request.userInfo.username == 'joe'":                         true,
		"request.?userInfo.username.orValue('') == 'joe'":            true,
		"has(request.userInfo)":                                      true,
		"request.options.dryRun == ['All']":                          true,
		"dyn(request).uid == ''":                                     true,
		"dyn(request)['userInfo'] == 1":                              true,
		"[request].all(r, r.userInfo.username == 'joe')":             true,
		"[1].all(request, .request.userInfo.username == 'joe')":      true,
		"[request.userInfo.username].all(request, request == '')":    true,
		"authorizer.path('/x').check('get').allowed()":               true,
		"authorizer.requestResource.check('approve').allowed()":      true,
		"{'a': request.userInfo.groups}['a'].size() == 0":            true,
		"variables.byUser":                                           true,
		"variables.indirect":                                         true,
		"dyn(variables)['indirect'] == true":                         true,
		"dyn(variables).byUser":                                      true,
		"object.metadata.name.startsWith(request.userInfo.username)": true,
	} {
		t.Run(text, func(t *testing.T) {
			compiler, variables, broken := newCompiler(t, celenv.New).CompileVariables([]celenv.Definition{
				{Name: "innocent", Expression: "request.name == 'app'"},
				{Name: "byUser", Expression: "request.userInfo.username == 'joe'"},
				{Name: "indirect", Expression: "!variables.byUser"},
			})
			if len(broken) > 0 {
				t.Fatal(broken)
			}
			// Any, because some of these are of an unknown type.
			expression, err := compiler.Compile(text, celenv.Any)
			if err != nil {
				t.Fatal(err)
			}
			if got := expression.NeedsRequest(variables); got != want {
				t.Errorf("NeedsRequest is %t, want %t", got, want)
			}
		})
	}
}
