package celenv

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSubstitute: variables are replaced wherever they are mentioned, and nothing else is.
func TestSubstitute(t *testing.T) {
	compiler, err := NewCompiler(Stored, StageSet)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		text, want, err string
	}{
		"alone":   {text: "tenant", want: "(A)"},
		"in text": {text: "'tenant' == string(tenant)", want: "'tenant' == string((A))"},
		"as a field": {
			text: "object.tenant == tenant && has(object.params)", want: "object.tenant == (A) && has(object.params)",
		},
		"in macros":  {text: "has(params.a) && [1].all(x, params.b == x)", want: "has((B).a) && [1].all(x, (B).b == x)"},
		"optionally": {text: "params.?a[?'b'].orValue(tenant)", want: "(B).?a[?'b'].orValue((A))"},
		"not ASCII":  {text: "'äö🙂' == params.a && tenant", want: "'äö🙂' == (B).a && (A)"},
		"many lines": {text: "tenant &&\n  tenant", want: "(A) &&\n  (A)"},
		"with a dot": {text: ".tenant || [true].all(x, x)", want: "(A) || [true].all(x, x)"},
		"hidden": {
			text: "[true].all(tenant, tenant)",
			err:  "calls the items of a loop tenant, as a variable is called: call them something else",
		},
		"not there":    {text: "object.a == 1", want: "object.a == 1"},
		"one in other": {text: "params[string(tenant)] == 1", want: "(B)[string((A))] == 1"},
	} {
		t.Run(name, func(t *testing.T) {
			compiled, err := compiler.Compile(test.text, Any)
			if err != nil {
				t.Fatal(err)
			}
			got, err := compiled.Substitute(test.text, map[string]string{"tenant": "A", "params": "B"})
			failure := ""
			if err != nil {
				failure = err.Error()
			}
			if diff := cmp.Diff([]string{test.want, test.err}, []string{got, failure}); diff != "" {
				t.Errorf("substituted (-want +got):\n%s", diff)
			}
		})
	}
}
