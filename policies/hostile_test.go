package policies_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

// huge is a StageSet of some 1.2 MB: 64 stages with patches.
func huge(t testing.TB) *unstructured.Unstructured {
	t.Helper()
	object := stageSet(t, "")
	stages := make([]any, 64)
	for i := range stages {
		stages[i] = map[string]any{
			"name": fmt.Sprintf("stage-%d", i), "sourceRef": map[string]any{"name": "app"},
			"patches": []any{map[string]any{"patch": strings.Repeat("x", 19<<10)}},
		}
	}
	object.Object["spec"] = map[string]any{"stages": stages}
	return object
}

// deep is a StageSet with an annotation-like tree of maps as deep as the API server lets JSON be.
func deep(t testing.TB) *unstructured.Unstructured {
	t.Helper()
	var tree any = "leaf"
	for range 9000 {
		tree = map[string]any{"a": tree}
	}
	object := stageSet(t, "")
	object.Object["spec"].(map[string]any)["deep"] = tree
	return object
}

// TestHostile: whatever an expression does, and whatever it is evaluated on, there is a decision in time and in bounded
// memory, it fails closed, and the policy beside it is evaluated (P-48).
func TestHostile(t *testing.T) {
	const (
		timeout   = time.Minute // generous, for slow machines: the budgets are to end it long before
		memory    = 512 << 20   // allocated, not held
		tooCostly = "cannot be evaluated: costs more than 200000 units"
	)
	tens := "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
	nested := "true"
	for range 9 {
		nested = tens + ".all(x, " + nested + ")"
	}
	doubled := "'xxxxxxxxxxxxxxxx'"
	for range 9 {
		doubled = fmt.Sprintf("[%s].map(s, s + s + s + s + s + s + s + s)[0]", doubled)
	}
	for name, test := range map[string]struct {
		expression string
		object     *unstructured.Unstructured
		want       string
	}{
		"endless": {nested, stageSet(t, ""), tooCostly},
		"quadratic": {
			"object.spec.stages.all(a, object.spec.stages.all(b, a.patches[0].patch.contains(b.patches[0].patch + 'y')))", huge(t),
			tooCostly,
		},
		"allocates": {doubled + " == ''", stageSet(t, ""), tooCostly},
		"lists of lists": {
			tens + ".map(a, " + tens + ".map(b, " + tens + ".map(c, " + tens + ".map(d, " + tens + ".map(e, e))))).size() == 0",
			stageSet(t, ""), tooCostly,
		},
		"regular expression": {
			"object.spec.stages.exists(s, s.patches[0].patch.matches('(x+x+)+y'))", huge(t),
			tooCostly,
		},
		"regular expression that is huge": {
			"'x'.matches('(((x{1,100}){1,100}){1,100})y')", stageSet(t, ""),
			"does not compile: line 1, column 13: invalid matches argument",
		},
		"a huge StageSet":      {"object.spec.stages.all(s, s.name == '')", huge(t), "is wrong"},
		"two of them compared": {"object.spec == object.spec && false", huge(t), "is wrong"},
		"deep nesting":         {"object.spec.deep == object.spec.deep && false", deep(t), "is wrong"},
		"a unicode field": {
			"object.spec['ключ'] == '値' && object.spec['x-y'] == 1 && false",
			stageSet(t, "spec: {ключ: 値, x-y: 1}"), "is wrong",
		},
		"a unicode field that is not there": {
			"object.spec['ключ'] == '値'", stageSet(t, ""),
			`cannot be evaluated: reads object.spec["ключ"], but ключ is not set (guard it with has() or .?)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			list := []v1alpha1.StageSetPolicy{rule(t, "a", test.expression, ""), rule(t, "b", "false", "")}
			set, err := policies.Compile(t.Context(), list, policies.Options{Timeout: timeout})
			var problems policies.Problems
			if err != nil && !errors.As(err, &problems) {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			started := time.Now()
			denied := set.Validate(t.Context(), creating(test.object)).Denied
			took := time.Since(started)
			runtime.ReadMemStats(&after)
			if took > timeout/4 {
				t.Errorf("it took %s", took)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > memory {
				t.Errorf("it allocated %d bytes", used)
			}
			if len(denied) != 2 || !strings.HasPrefix(denied[0].Message, test.want) || denied[1].String() != "b/rule: is wrong" {
				t.Errorf("it says %.500v, want %q and the other policy", denied, test.want)
			}
		})
	}
}

// TestHostileDefaults: what is huge or deep is defaulted in bounded memory, or left alone, and what one policy cannot do keeps
// no other from it.
func TestHostileDefaults(t *testing.T) {
	const memory = 256 << 20
	const undeclared = "p/mutations[0]: sets what a StageSet cannot have: .spec.deep: field not declared in schema"
	interval := sets(t, "q", "Object{spec: Object.spec{interval: '1m'}}")
	for name, test := range map[string]struct {
		policy       v1alpha1.StageSetPolicy
		object       *unstructured.Unstructured
		want, failed string
	}{
		"huge, a configuration": {
			sets(t, "p", "Object{spec: Object.spec{suspend: true}}"), huge(t), "spec.interval=q,spec.suspend=p", "",
		},
		"huge, a patch": {
			patches(t, "p", "[JSONPatch{op: 'add', path: '/spec/suspend', value: true}]"), huge(t),
			"spec.interval=q,spec.suspend=p", "",
		},
		"huge, a patch that makes it grow": {
			patches(t, "p", "[JSONPatch{op: 'copy', from: '/spec/stages', path: '/spec/dependsOn'}]"), huge(t), "spec.interval=q",
			"p/mutations[0]: sets a patch that cannot be applied: Unable to complete the copy, the accumulated size increase",
		},
		"deep, a configuration": {sets(t, "p", "Object{spec: Object.spec{suspend: true}}"), deep(t), "", ""},
		"deep, a patch": {
			patches(t, "p", "[JSONPatch{op: 'add', path: '/spec/suspend', value: true}]"), deep(t), "", undeclared,
		},
	} {
		t.Run(name, func(t *testing.T) {
			list := []v1alpha1.StageSetPolicy{test.policy, interval}
			set, err := policies.Compile(t.Context(), list, policies.Options{Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got, err := set.Default(t.Context(), creating(test.object))
			runtime.ReadMemStats(&after)
			if used := after.TotalAlloc - before.TotalAlloc; used > memory {
				t.Errorf("it allocated %d bytes", used)
			}
			if recorded := got.GetAnnotations()["stages.metio.wtf/defaulted-by"]; recorded != test.want {
				t.Errorf("recorded is %q, want %q", recorded, test.want)
			}
			if failed := fmt.Sprint(err); err != nil && (test.failed == "" || !strings.HasPrefix(failed, test.failed)) {
				t.Errorf("the error is %.300s", failed)
			} else if err == nil && test.failed != "" {
				t.Error("there is no error")
			}
		})
	}
}

// TestHostileText: text that cannot be compiled is refused, quickly and with a reason.
func TestHostileText(t *testing.T) {
	for name, test := range map[string]struct {
		expression, want string
	}{
		"too long":         {strings.Repeat("true && ", 2000) + "true", "is 16004 bytes long, more than 10240"},
		"deep parentheses": {strings.Repeat("(", 5000) + "true" + strings.Repeat(")", 5000), "recursion"},
		"deep calls":       {strings.Repeat("!", 10000) + "true", ""},
		"deep lists":       {strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + " == []", "recursion"},
		"unicode":          {"ключ == 1", "token recognition error"},
		"no text at all":   {" \n\t ", "is empty"},
		"not UTF-8":        {"'\xff\xfe' == 'x'", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := rule(t, "p", test.expression, "")
			started := time.Now()
			_, err := policies.Check(t.Context(), &p, policies.CheckOptions{})
			if took := time.Since(started); took > 5*time.Second {
				t.Errorf("it took %s", took)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("the error is %.300v, want %s", err, test.want)
			}
			set, _ := policies.Compile(t.Context(), []v1alpha1.StageSetPolicy{p}, policies.Options{})
			got := set.Validate(t.Context(), creating(stageSet(t, "")))
			if test.want != "" && len(got.Denied) != 1 {
				t.Errorf("what does not compile lets pass: %+v", got)
			}
		})
	}
}

// TestLimits: a policy that is larger than the schema admits is refused, with every limit that it exceeds.
func TestLimits(t *testing.T) {
	var spec v1alpha1.StageSetPolicySpec
	for i := range 65 {
		name := fmt.Sprintf("n%d", i)
		spec.MatchConditions = append(spec.MatchConditions, v1alpha1.MatchCondition{Name: name, Expression: "true"})
		spec.Variables = append(spec.Variables, v1alpha1.Variable{Name: name, Expression: "1"})
		spec.Validations = append(spec.Validations, v1alpha1.Validation{Name: name, Message: "m", Expression: "true"})
	}
	for i := range 21 {
		value := "'" + strings.Repeat("x", (5<<10)*(i/20)) + "'"
		annotation := v1alpha1.AuditAnnotation{Key: fmt.Sprintf("k%d", i), ValueExpression: value}
		spec.AuditAnnotations = append(spec.AuditAnnotations, annotation)
	}
	for i := range 129 {
		spec.Tests = append(spec.Tests, v1alpha1.PolicyTest{Name: fmt.Sprint(i), Expect: v1alpha1.ExpectAllow})
	}
	p := policy(t, "p", "")
	p.Spec = spec
	_, err := policies.Check(t.Context(), &p, policies.CheckOptions{})
	if err == nil {
		t.Fatal("there is no error")
	}
	want := []string{
		"policy p: spec.matchConditions: has 65 items, more than 64",
		"policy p: spec.variables: has 65 items, more than 64",
		"policy p: spec.validations: has 65 items, more than 64",
		"policy p: spec.auditAnnotations: has 21 items, more than 20",
		"policy p: spec.tests: has 129 items, more than 128",
		"policy p: spec.auditAnnotations[k20].valueExpression: is 5122 bytes long, more than 5120",
	}
	if diff := cmp.Diff(want, strings.Split(err.Error(), "\n")); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}
