package policytest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/stageset/stageset/api/v1alpha1"
)

func tested(tests ...v1alpha1.PolicyTest) *v1alpha1.StageSetPolicy {
	made := &v1alpha1.StageSetPolicy{}
	made.Name = "p"
	made.Spec.Validations = []v1alpha1.Validation{{
		Name: "r", Expression: "params == null ? tenant : params.a == 'b'", Message: "no",
	}}
	for i := range tests {
		tests[i].Name = fmt.Sprintf("t%d", i)
	}
	made.Spec.Tests = tests
	return made
}

// What takes long is done once: tests that say the same of the installation have the same set, and others have others.
func TestTestsShareWhatIsCompiled(t *testing.T) {
	platform, tenant := false, true
	b, c := &runtime.RawExtension{Raw: []byte(`{"a":"b"}`)}, &runtime.RawExtension{Raw: []byte(`{"a":"c"}`)}
	compiled := newSets(tested())
	for _, test := range []v1alpha1.PolicyTest{
		{}, {Tenant: &tenant}, {Tenant: &platform}, {Params: b}, {Params: b}, {Params: c}, {Params: b, Tenant: &platform}, {},
	} {
		if _, err := compiled.of(t.Context(), &test); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(compiled.compiled); got != 5 {
		t.Errorf("it was compiled %d times, want 5", got)
	}
}

// ending ends when it has been asked a number of times whether it has.
type ending struct {
	context.Context
	left int
}

// Err implements context.Context.
func (e *ending) Err() error {
	if e.left--; e.left < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// When there is no time for all tests, that is the error, and not that some of them fail.
func TestThereIsNoTimeForAllTests(t *testing.T) {
	object := &runtime.RawExtension{Raw: []byte(`{"spec":{"stages":[{"name":"a","sourceRef":{"name":"x"}}]}}`)}
	var all []v1alpha1.PolicyTest
	for range 128 {
		all = append(all, v1alpha1.PolicyTest{Object: object, Expect: v1alpha1.ExpectAllow})
	}
	results, err := Run(&ending{Context: t.Context(), left: 10}, tested(all...))
	if !errors.Is(err, context.DeadlineExceeded) || results != nil {
		t.Fatalf("got %v, %v", results, err)
	}
	if !strings.Contains(err.Error(), "of the 128 tests of policy p") {
		t.Errorf("%q does not say so", err)
	}
	if results, err := Run(t.Context(), tested(all...)); err != nil || len(results) != 128 || !results[127].Passed() {
		t.Errorf("got %v, %v", results, err)
	}
}
