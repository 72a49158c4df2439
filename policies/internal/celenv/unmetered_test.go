package celenv

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types/ref"
	admissionv1 "k8s.io/api/admission/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// cheap are expressions that are not counted on small objects, and costly are others.
var (
	cheap = []string{
		"object.spec.stages.all(s, s.name != 'web')",
		"object.spec.stages.all(s, s.sourceRef.?namespace.orValue('') in ['', 'team-a'])",
		"object.spec.stages.exists_one(s, s.name.startsWith('w') || s.name.endsWith(object.metadata.name))",
		"object.spec.stages.filter(s, has(s.timeout)).all(s, duration(s.timeout) <= duration('1h'))",
		"object.spec.stages.map(s, s.name).size() == object.spec.stages.size()",
		"object.spec.stages.all(s, object.spec.stages.filter(other, other.name == 'web').size() < 2)",
		"object.spec.stages.all(i, s, i < s.name.size() + 100)",
		"object.spec.stages.all(object, object.name == 'web')",
		"object.metadata.?labels.orValue({}).all(k, k != object.metadata.labels[k])",
		"object.metadata['labels'].exists(k, k.matches('^[a-z]+$'))",
		"oldObject == null || object.spec == oldObject.spec || object.spec.stages[0] != oldObject.spec.stages[?0].orValue('')",
		"object.spec.items.all(x, string(x) != '' && x in object.spec.items)",
		"object.spec.items.exists(x, int(x) == 1) || object.spec.none",
		"object.spec.text != 'y' ? object.spec.text.contains('needle') : object.spec.stages[65].name == ''",
		"object.spec.text.split(',').exists(x, x == 'a') || object.spec.text.trim().lowerAscii() != 'a'",
		"object.spec.text.replace('a', 'b') != object.spec.text.substring(1)",
		"object.?spec.?none.or(object.?spec.?text).hasValue()",
		"variables.v == object.spec.text || tenant",
		"variables.named.all(s, s.name in params.list) && variables.named.map(s, s.name).all(n, n != 'a')",
	}
	costly = []string{
		"object.spec.stages.all(a, object.spec.stages.all(b, object.spec.stages.all(c, a.name + b.name != c.name)))",
		"object.spec.stages.all(a, object.spec.stages.all(b, a.name == b.name))",
		"object.metadata.annotations.all(k, k != 'a')",
		"object['metadata']['annotations'].all(k, k != 'a')",
		"object.metadata.all(k, object.metadata[k] != oldObject.metadata[k])",
		"object.metadata.managedFields.exists(f, f.manager == 'x')",
		"variables.unknown.all(x, x != 'a')",
		"params.metadata.annotations.all(x, x != 'a')",
		"authorizer.group('').resource('pods').check('get').allowed()",
		"object.spec.stages.map(s, s.name).sort() == []",
		"object.spec.stages.all(object, object.all(k, object[k] != 'a') && .object.metadata.annotations.all(k, k != 'a'))",
	}
)

// counted compiles text, and evaluates it on object.
type counted struct {
	*Expression
	variables *Variables
}

func compileCounted(t testing.TB, text string) counted {
	t.Helper()
	compiler, variables := countingCompiler(t)
	compiled, err := compiler.Compile(text, Bool)
	if err != nil {
		t.Fatal(err)
	}
	return counted{compiled, variables}
}

func countingCompiler(t testing.TB) (*Compiler, *Variables) {
	t.Helper()
	compiler, err := NewCompiler(Stored, StageSet)
	if err != nil {
		t.Fatal(err)
	}
	compiler, variables, broken := compiler.CompileVariables([]Definition{
		{"v", "object.spec.text"},
		{"named", "object.spec.stages.filter(s, s.?name.orValue('') != '')"},
		{"unknown", "object.metadata.annotations"},
	})
	if len(broken) > 0 {
		t.Fatal(broken)
	}
	return compiler, variables
}

// on is the value of x on object, or why there is none, and what was counted.
func (x counted) on(t testing.TB, object map[string]any, measured bool) (ref.Val, string, uint64) {
	t.Helper()
	values := Values{Request: &admissionv1.AdmissionRequest{Operation: admissionv1.Create}, Measured: measured}
	evaluation := NewEvaluation(t.Context(), values, 1)
	group := evaluation.Group(x.variables, map[string]any{"list": []any{"a", "aaa"}})
	value, err := group.Scope(t.Context(), object, nil).evaluate(x.Expression)
	if err != nil {
		return nil, err.Error(), evaluation.Spent()
	}
	return value, "", evaluation.Spent()
}

// compare compares what x is on objects when it is not counted with what it is when it is.
func (x counted) compare(t *testing.T, text string, objects ...map[string]any) {
	t.Helper()
	most := x.bound + x.variables.expressions["v"].bound + x.variables.expressions["named"].bound
	for i, object := range objects {
		value, failed, _ := x.on(t, object, false)
		wanted, wantFailed, cost := x.on(t, object, true)
		if value != wanted || failed != wantFailed {
			t.Errorf("%s, on object %d: %v %s, want %v %s", text, i, value, failed, wanted, wantFailed)
		}
		if small(object) && cost > most {
			t.Errorf("%s, on object %d, costs %d units, which were %d at most", text, i, cost, most)
		}
	}
}

// whole is an object whose lists, maps and strings have n parts.
func whole(n int) map[string]any {
	text, stages, items, labels := strings.Repeat("a", n), []any{}, []any{}, map[string]any{}
	for i := range min(n, maxItems) {
		stages = append(stages, map[string]any{"name": text, "timeout": "5m", "sourceRef": map[string]any{"namespace": text}})
		items = append(items, int64(i))
		labels[text[:i]+"b"] = text
	}
	return map[string]any{
		"metadata": map[string]any{"name": text, "labels": labels, "annotations": map[string]any{"a": strings.Repeat("b", 9*n)}},
		"spec":     map[string]any{"stages": stages, "items": items, "text": text},
	}
}

// What is not counted has the same value, or fails alike, and costs no more than what is known beforehand.
func TestUncountedIsTheSame(t *testing.T) {
	for _, text := range cheap {
		t.Run(text, func(t *testing.T) {
			x := compileCounted(t, text)
			if x.unmetered == nil {
				t.Fatal("it is counted")
			}
			x.compare(t, text, whole(0), whole(1), whole(3), whole(maxItems), whole(maxLength))
		})
	}
}

func TestWhatIsCounted(t *testing.T) {
	for _, text := range costly {
		if x := compileCounted(t, text); x.unmetered != nil {
			t.Errorf("%s is not counted", text)
		}
	}
	x := compileCounted(t, cheap[0])
	for name, grow := range map[string]func(object map[string]any){
		"a long string": func(o map[string]any) { o["spec"].(map[string]any)["text"] = strings.Repeat("x", maxLength+1) },
		"a long list":   func(o map[string]any) { o["spec"].(map[string]any)["items"] = make([]any, maxItems+1) },
		"a large map":   func(o map[string]any) { o["data"] = whole(maxItems)["metadata"]; fill(o["data"].(map[string]any)) },
		"a long label": func(o map[string]any) {
			o["metadata"].(map[string]any)["labels"].(map[string]any)["x"] = strings.Repeat("x", maxLength+1)
		},
		"a large object": fill,
		"large metadata": func(o map[string]any) { fill(o["metadata"].(map[string]any)) },
	} {
		object := whole(3)
		grow(object)
		if _, _, spent := x.on(t, object, false); spent == 0 {
			t.Errorf("%s is not counted", name)
		}
	}
}

func fill(fields map[string]any) {
	for len(fields) <= maxItems {
		fields[strings.Repeat("x", len(fields))] = true
	}
}

// What is not counted is bounded by what it may cost: what comes after that is counted again.
func TestUncountedIsBounded(t *testing.T) {
	x := compileCounted(t, cheap[5])
	object, evaluation := whole(3), NewEvaluation(t.Context(), Values{}, 1)
	scope := evaluation.Group(x.variables, nil).Scope(t.Context(), object, nil)
	most := RequestCostLimit / int(x.bound)
	for i := range most + 1 {
		if counts := evaluation.Spent() > 0; counts {
			t.Fatalf("evaluation %d of %d is counted", i, most)
		}
		if _, err := scope.evaluate(x.Expression); err != nil {
			t.Fatal(err)
		}
	}
	if evaluation.Spent() == 0 {
		t.Error("it is never counted")
	}
}

// FuzzUncounted: whatever is not counted has the same value as if it were, and costs no more than what is known beforehand.
// Besides what the text says, it is asked of an expression that is generated from the seed.
func FuzzUncounted(f *testing.F) {
	for i, text := range append(cheap, costly...) {
		for _, size := range []int{0, 3, maxItems} {
			object, err := json.Marshal(whole(size))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(uint64(i), text, object)
		}
	}
	compiler, variables := countingCompiler(f)
	f.Fuzz(func(t *testing.T, seed uint64, text string, object []byte) {
		var fields map[string]any
		if utiljson.Unmarshal(object, &fields) != nil {
			return
		}
		for _, text := range []string{text, newGenerator(seed).condition(5)} {
			compiled, err := compiler.Compile(text, Bool)
			if err != nil || compiled.unmetered == nil {
				continue
			}
			counted{compiled, variables}.compare(t, text, fields)
		}
	})
}
