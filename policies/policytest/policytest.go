// Package policytest runs the tests that a policy carries: the same way for the built-in policies, for those of an admin,
// and on the command line. It evaluates nothing itself, and needs no cluster.
package policytest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

// Result is the outcome of one test.
type Result struct {
	// Policy and Test name the test.
	Policy, Test string
	// Failures say what was expected and what came instead, a difference in each; there are none if the test passed.
	Failures []string
}

// Passed tells whether everything was as expected.
func (r Result) Passed() bool { return len(r.Failures) == 0 }

// Run runs the tests of policy, in order. Each is evaluated as a request: mutations first, then validations. A test stands
// for itself, so that it says the same in every installation: its params and its tenant are the only ones. The error is
// policies.Problems; a policy that does not compile is not tested. When ctx ends, the error says how many tests were run.
func Run(ctx context.Context, policy *v1alpha1.StageSetPolicy) ([]Result, error) {
	options := policies.Options{}
	if policy.Spec.ParamKind != nil {
		options.ParamResources = []v1alpha1.ParamKind{*policy.Spec.ParamKind}
	}
	if _, err := policies.Compile(ctx, []v1alpha1.StageSetPolicy{*policy}, options); err != nil {
		return nil, err
	}
	sets := newSets(policy)
	results := make([]Result, 0, len(policy.Spec.Tests))
	for i := range policy.Spec.Tests {
		test := &policy.Spec.Tests[i]
		result := Result{Policy: policy.Name, Test: test.Name}
		failures, err := sets.run(ctx, test)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("there was time for %d of the %d tests of policy %s: %w",
				i, len(policy.Spec.Tests), policy.Name, ctx.Err())
		}
		if err != nil {
			failures = append(failures, err.Error())
		}
		result.Failures = failures
		results = append(results, result)
	}
	return results, nil
}

// Check finds what is wrong with a policy that is about to be stored, as policies.Check does, and, if it compiles, also the
// tests that it carries which do not pass. The error is policies.Problems, or that of ctx if there was no time for that.
func Check(ctx context.Context, policy *v1alpha1.StageSetPolicy, options policies.CheckOptions) (policies.Problems, error) {
	warnings, err := policies.Check(ctx, policy, options)
	if err != nil {
		return warnings, err
	}
	results, err := Run(ctx, policy)
	if err != nil {
		return warnings, err
	}
	var problems policies.Problems
	for _, result := range results {
		for _, failure := range result.Failures {
			problems = append(problems, policies.Problem{
				Policy: policy.Name, Field: fmt.Sprintf("spec.tests[%s]", result.Test),
				Message: strings.Join(strings.Fields(failure), " "),
			})
		}
	}
	if len(problems) > 0 {
		return warnings, problems
	}
	return warnings, nil
}

// run runs a test, and says what came otherwise than expected.
func (s *sets) run(ctx context.Context, test *v1alpha1.PolicyTest) ([]string, error) {
	set, err := s.of(ctx, test)
	if err != nil {
		return nil, err
	}
	target := s.policy.Spec.Target
	if target == "" || target == v1alpha1.TargetStageSet {
		return runStageSet(ctx, set, test)
	}
	decision, err := judgeRelease(ctx, set, target, test)
	if err != nil {
		return nil, err
	}
	return compareDecision(test, decision), nil
}

// runStageSet runs a test as a request.
func runStageSet(ctx context.Context, set *policies.Set, test *v1alpha1.PolicyTest) ([]string, error) {
	in, err := input(test)
	if err != nil {
		return nil, err
	}
	var failures []string
	in.Object, err = set.Default(ctx, in)
	if err != nil {
		failures = append(failures, "cannot be defaulted: "+err.Error())
	}
	if err := fillIn(in.Object); err != nil {
		return nil, err
	}
	failures = append(failures, compareDefaulted(test, in.Object)...)
	return append(failures, compareDecision(test, set.Validate(ctx, in))...), nil
}

// compareDefaulted compares what the mutations made of the object. The annotation that records them is the engine's.
func compareDefaulted(test *v1alpha1.PolicyTest, got *unstructured.Unstructured) []string {
	if test.Defaulted == nil {
		return nil
	}
	want, err := stageSet("defaulted", test.Defaulted, namespaceName(v1alpha1.TargetStageSet, test))
	if err != nil {
		return []string{err.Error()}
	}
	if got == nil {
		return []string{"defaulted: there is no object to default"}
	}
	got = got.DeepCopy()
	unstructured.RemoveNestedField(got.Object, "metadata", "annotations", v1.AnnotationDefaultedBy)
	if len(got.GetAnnotations()) == 0 {
		unstructured.RemoveNestedField(got.Object, "metadata", "annotations")
	}
	if diff := cmp.Diff(want.Object, got.Object); diff != "" {
		return []string{"defaulted (-want +got):\n" + diff}
	}
	return nil
}

// compareDecision compares what the validations said.
func compareDecision(test *v1alpha1.PolicyTest, decision policies.Decision) []string {
	var failures []string
	if got := outcome(decision); !meets(test.Expect, got) {
		failures = append(failures, fmt.Sprintf("expected %s, but it is %s%s", test.Expect, got, said(decision)))
	}
	for _, ignored := range decision.Ignored {
		failures = append(failures, "cannot be evaluated, which failurePolicy ignores: "+ignored.String())
	}
	if test.Message != "" && !slices.ContainsFunc(violations(decision), func(text string) bool {
		return strings.Contains(text, test.Message)
	}) {
		failures = append(failures, fmt.Sprintf("expected a message with %q%s", test.Message, said(decision)))
	}
	return failures
}

// The outcomes of a test.
const (
	allowed = "allowed"
	denied  = "denied"
	warned  = "warned about"
	audited = "only audited"
)

func outcome(decision policies.Decision) string {
	switch {
	case len(decision.Denied) > 0:
		return denied
	case len(decision.Warned) > 0:
		return warned
	case len(decision.Audited) > 0:
		return audited
	default:
		return allowed
	}
}

// meets tells whether the outcome is what is expected. A policy that only warns or audits so far meets deny as well: its
// tests stay what they are when it is tightened.
func meets(expect v1alpha1.Expectation, outcome string) bool {
	switch expect {
	case v1alpha1.ExpectAllow:
		return outcome == allowed
	case v1alpha1.ExpectWarn:
		return outcome == warned
	case v1alpha1.ExpectDeny:
		return outcome != allowed
	default:
		return false
	}
}

func said(decision policies.Decision) string {
	all := violations(decision)
	if len(all) == 0 {
		return ""
	}
	return ":\n  " + strings.Join(all, "\n  ")
}

// violations are the texts of all violations, each once.
func violations(decision policies.Decision) []string {
	var all []string
	for _, v := range slices.Concat(decision.Denied, decision.Warned, decision.Audited) {
		all = append(all, v.String())
	}
	slices.Sort(all)
	return slices.Compact(all)
}
