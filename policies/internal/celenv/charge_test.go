package celenv

import (
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
)

// manyVariables is an expression that reads n variables, none of which costs enough to be charged. (Those after the first few
// of them are, because a rule has only so much free.)
func manyVariables(t *testing.T, n int) counted {
	t.Helper()
	compiler, err := NewCompiler(Stored, StageSet)
	if err != nil {
		t.Fatal(err)
	}
	var definitions []Definition
	var names []string
	for i := range n {
		name := fmt.Sprintf("v%d", i)
		names = append(names, "variables."+name)
		definitions = append(definitions, Definition{
			Name: name, Expression: "object.spec.stages.all(s, object.spec.stages.filter(other, other.name == 'web').size() < 2)",
		})
	}
	compiler, variables, broken := compiler.CompileVariables(definitions)
	if len(broken) > 0 {
		t.Fatal(broken)
	}
	for name, variable := range variables.expressions {
		if variable.unmetered == nil {
			t.Fatalf("%s is always counted", name)
		}
	}
	compiled, err := compiler.Compile(strings.Join(names, " && "), Bool)
	if err != nil {
		t.Fatal(err)
	}
	return counted{compiled, variables}
}

// What a rule is charged does not depend on whether its cost is measured: neither does what comes of it.
func TestMeasuringDecidesNothing(t *testing.T) {
	object := whole(maxItems)
	for variables, fails := range map[int]bool{1: false, 3: false, 22: true, 64: true} {
		x := manyVariables(t, variables)
		value, failed, _ := x.on(t, object, false)
		measuredValue, measuredFailed, cost := x.on(t, object, true)
		if value != measuredValue || failed != measuredFailed {
			t.Errorf("%d variables of %d units: %v %s, and if it is measured %v %s",
				variables, cost, value, failed, measuredValue, measuredFailed)
		}
		if (failed != "") != fails {
			t.Errorf("%d variables of %d units: %v %s", variables, cost, value, failed)
		}
	}
}

// So it is with the limit of a request.
func TestMeasuringEndsNothing(t *testing.T) {
	x := compileCounted(t, cheap[5])
	object := whole(maxItems)
	after := func(measured bool) int {
		values := Values{Request: &admissionv1.AdmissionRequest{Operation: admissionv1.Create}, Measured: measured}
		evaluation := NewEvaluation(t.Context(), values, 1)
		for i := range 1000 {
			scope := evaluation.Group(x.variables, nil).Scope(t.Context(), object, nil)
			scope.used.spent = RequestCostLimit + 1 // as if it had had more than its share
			if _, err := scope.evaluate(x.Expression); err != nil {
				return i
			}
		}
		t.Fatal("a request may cost whatever it likes")
		return 0
	}
	if not, measured := after(false), after(true); not != measured {
		t.Errorf("the request may evaluate %d rules, and %d if it is measured", not, measured)
	}
}
