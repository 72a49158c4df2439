package policies_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

// builtIn is a Set of one policy that is built in, and knows no more than that.
func builtIn(t *testing.T) *policies.Set {
	t.Helper()
	options := policies.Options{BuiltIn: true, Params: map[string]map[string]any{"base": {"limit": int64(0)}}}
	list := []v1alpha1.StageSetPolicy{rule(t, "base", "params.limit == 1", "")}
	set, err := policies.Compile(t.Context(), list, options)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// version is a generation of a policy that is stored.
func version(p v1alpha1.StageSetPolicy, uid types.UID, generation int64) v1alpha1.StageSetPolicy {
	p.UID, p.Generation = uid, generation
	return p
}

// TestWith: stored policies come and go beside the built-in ones, and a broken one stops no other (P-55).
func TestWith(t *testing.T) {
	base := builtIn(t)
	first, err := base.With(t.Context(), []v1alpha1.StageSetPolicy{
		version(rule(t, "a", "false", ""), "1", 1), version(rule(t, "b", "nobody", ""), "2", 1),
	}, nil)
	var problems policies.Problems
	if !errors.As(err, &problems) || first == nil {
		t.Fatalf("got %v, %v", first, err)
	}
	second, err := first.With(t.Context(), []v1alpha1.StageSetPolicy{
		version(rule(t, "a", "true", ""), "1", 2), version(rule(t, "c", "false", ""), "3", 1),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		set  *policies.Set
		want []string
	}{
		"built in": {base, []string{"spec: base/rule: is wrong"}},
		"one broken": {first, []string{
			"spec: a/rule: is wrong", "spec: b/rule: does not compile: line 1, column 1: undeclared reference to 'nobody'",
			"spec: base/rule: is wrong",
		}},
		"later": {second, []string{"spec: base/rule: is wrong", "spec: c/rule: is wrong"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := said(test.set.Validate(t.Context(), creating(stageSet(t, ""))).Denied)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("denied (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWithCompilesOnce: a policy of the same generation is not compiled again, another one with its name is.
func TestWithCompilesOnce(t *testing.T) {
	before := version(rule(t, "p", "false", ""), "1", 1)
	set, err := builtIn(t).With(t.Context(), []v1alpha1.StageSetPolicy{before}, nil)
	if err != nil {
		t.Fatal(err)
	}
	// The text is another only to see which of both is evaluated: in a cluster it is not, in the same generation.
	for name, test := range map[string]struct {
		uid        types.UID
		generation int64
		want       int
	}{
		"the same":           {"1", 1, 2},
		"another generation": {"1", 2, 1},
		"another policy":     {"2", 1, 1},
		"no identity":        {"", 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			after := version(rule(t, "p", "true", ""), test.uid, test.generation)
			next, err := set.With(t.Context(), []v1alpha1.StageSetPolicy{after}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := next.Validate(t.Context(), creating(stageSet(t, ""))).Denied; len(got) != test.want {
				t.Errorf("%d are denied, want %d: %v", len(got), test.want, got)
			}
		})
	}
}

// TestWithTakenName: a stored policy with the name of a built-in one takes nothing away from it, and is told so.
func TestWithTakenName(t *testing.T) {
	stored := []v1alpha1.StageSetPolicy{version(rule(t, "base", "false", "validationActions: [Warn]"), "1", 1)}
	set, err := builtIn(t).With(t.Context(), stored, nil)
	want := "policy base: metadata.name: is the name of a built-in policy: choose another"
	if err == nil || err.Error() != want {
		t.Errorf("the error is %v, want %s", err, want)
	}
	got := set.Validate(t.Context(), creating(stageSet(t, "")))
	if len(got.Denied) != 1 || len(got.Warned) != 1 {
		t.Errorf("not both are evaluated: %+v", got)
	}
	_, err = policies.Check(t.Context(), &stored[0], policies.CheckOptions{BuiltIn: []string{"base"}})
	if err == nil || err.Error() != want {
		t.Errorf("Check: the error is %v, want %s", err, want)
	}
}

// TestPolicies: what a Set made of its policies is there to be shown.
func TestPolicies(t *testing.T) {
	const asking = `
validations:
- {name: who, message: m, expression: "request.userInfo.username == 'joe'"}
- {name: what, message: m, expression: "has(object.spec.stages)"}`
	stored := []v1alpha1.StageSetPolicy{
		version(policy(t, "a", asking), "1", 3),
		version(policy(t, "b", asking+"\nmatchConditions: [{name: c, expression: request.userInfo.username != ''}]"), "2", 1),
		version(rule(t, "c", "nobody", "target: Source"), "3", 1),
		version(rule(t, "d", "oldObject.spec.suspend", "matchConstraints: {operations: [DELETE]}"), "4", 1),
	}
	set, _ := builtIn(t).With(t.Context(), stored, nil)
	both := []v1alpha1.EnforcementPoint{v1alpha1.EnforcedAtAdmission, v1alpha1.EnforcedAtReconcile}
	want := []policies.Summary{
		{Name: "a", UID: "1", Generation: 3, Target: v1alpha1.TargetStageSet, Rules: []v1alpha1.RuleStatus{
			{Name: "who", EnforcedAt: both[:1]}, {Name: "what", EnforcedAt: both},
		}},
		{Name: "b", UID: "2", Generation: 1, Target: v1alpha1.TargetStageSet, AdmissionOnly: true, Rules: []v1alpha1.RuleStatus{
			{Name: "who", EnforcedAt: both[:1]}, {Name: "what", EnforcedAt: both[:1]},
		}},
		{
			Name: "base", BuiltIn: true, Target: v1alpha1.TargetStageSet,
			Rules: []v1alpha1.RuleStatus{{Name: "rule", EnforcedAt: both}},
		},
		{
			Name: "c", UID: "3", Generation: 1, Target: v1alpha1.TargetSource,
			Rules: []v1alpha1.RuleStatus{{Name: "rule", EnforcedAt: both[1:]}},
			Problems: policies.Problems{{
				Policy: "c", Field: "spec.validations[rule].expression", Line: 1, Column: 1,
				Message: "undeclared reference to 'nobody'",
			}},
		},
		{
			Name: "d", UID: "4", Generation: 1, Target: v1alpha1.TargetStageSet,
			Rules: []v1alpha1.RuleStatus{{Name: "rule", EnforcedAt: both[:1]}},
			Problems: policies.Problems{{
				Policy: "d", Field: "spec.validations[rule].expression", Message: "evaluates to dyn, not to bool",
			}},
		},
	}
	if diff := cmp.Diff(want, set.Policies()); diff != "" {
		t.Errorf("policies (-want +got):\n%s", diff)
	}
}
