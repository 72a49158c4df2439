package policies_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/stageset/stageset/policies"
)

func TestExpressionHolds(t *testing.T) {
	object := map[string]any{
		"metadata": map[string]any{"name": "a", "generation": int64(2)},
		"spec":     map[string]any{"size": int64(3)},
		"status": map[string]any{"phase": "Wound", "conditions": []any{
			map[string]any{"type": "Ready", "status": "True"}, map[string]any{"type": "Synced", "status": "False"},
		}},
	}
	cases := map[string]struct {
		object map[string]any
		want   bool
		err    string
	}{
		"object.status.phase == 'Wound'":                                            {object: object, want: true},
		"status.phase == 'Wound' && metadata.name == 'a' && spec.size > 2":          {object: object, want: true},
		"status.conditions.filter(c, c.type == 'Ready').all(c, c.status == 'True')": {object: object, want: true},
		"status.conditions.exists(c, c.type == 'Synced' && c.status == 'True')":     {object: object},
		"has(status.phase)":                    {object: map[string]any{"metadata": map[string]any{}}},
		"status.missing > 1":                   {object: object, err: "reads status.missing, but missing is not set"},
		"status.phase":                         {object: object, err: "bool"},
		"!spec.text.contains(spec.text + 'y')": {object: texts(6000), err: "cost"},
	}
	for text, tc := range cases {
		t.Run(text, func(t *testing.T) {
			var got bool
			expression, err := policies.NewExpression(text)
			if err == nil {
				got, err = expression.Holds(t.Context(), tc.object, policies.NewBudget(t.Context()))
			}
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("error is %v, want %q", err, tc.err)
			}
			if got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

// texts is an object with a text of that length: looking for a long text in another takes many units, and little time.
func texts(length int) map[string]any {
	return map[string]any{"spec": map[string]any{"text": strings.Repeat("x", length)}}
}

func TestExpressionSaysWhereItIsWrong(t *testing.T) {
	_, err := policies.NewExpression("status.phase == 'a' &&\n  statsu.phase == other")
	if err == nil {
		t.Fatal("it compiles")
	}
	want := "line 2, column 3: undeclared reference to 'statsu'; line 2, column 19: undeclared reference to 'other'"
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}

// One object after the other cannot take more than all may take together.
func TestBudgetIsOfAllExpressions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		expression, err := policies.NewExpression("!spec.text.contains(spec.text + 'y')")
		if err != nil {
			t.Fatal(err)
		}
		object := texts(4000)
		within := policies.NewBudget(t.Context())
		for range 100 {
			if _, err = expression.Holds(t.Context(), object, within); err != nil {
				break
			}
		}
		if err == nil || !strings.Contains(err.Error(), "all objects together") {
			t.Errorf("a hundred evaluations end with %v, want that the budget is spent", err)
		}
	})
}
