package policies_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

// seen is an Observer that keeps what it is told.
type seen struct {
	mu       sync.Mutex
	costs    map[string]bool // whether it has cost something, by policy
	failures []string
	outcomes []policies.Outcome
}

func (s *seen) Begin(policy string, target v1alpha1.Target) func(uint64) {
	return func(cost uint64) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.costs[policy+" "+string(target)] = cost > 0
	}
}

func (s *seen) Failed(policy string, kind policies.FailureKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, policy+" "+string(kind))
}

func (s *seen) Decided(outcome policies.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outcomes = append(s.outcomes, outcome)
}

// TestObserved: an observer is told what each policy cost, why one could not be evaluated, and what came of the whole.
func TestObserved(t *testing.T) {
	policy := func(name, expression string) v1alpha1.StageSetPolicy {
		return v1alpha1.StageSetPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1alpha1.StageSetPolicySpec{
				Validations: []v1alpha1.Validation{{Name: "r", Expression: expression, Message: "m"}},
			},
		}
	}
	costly := policy("costly", "[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, "+
		"[1,2,3,4,5,6,7,8,9].all(d, [1,2,3,4,5,6,7,8,9].all(e, a+b+c+d+e > 0)))))")
	without := policy("without", "params.a == ''")
	without.Spec.ParamKind = &v1alpha1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	without.Spec.ParamRef = &v1alpha1.ParamRef{Name: "a"}
	set, err := policies.Compile(t.Context(), nil, policies.Options{})
	if err != nil {
		t.Fatal(err)
	}
	told := &seen{costs: map[string]bool{}}
	set, _ = set.Observed(told).With(t.Context(), []v1alpha1.StageSetPolicy{
		policy("broken", "nobody"), costly, policy("denies", "object.metadata.name == 'b'"), policy("unset", "object.spec.none == 1"), without,
	}, nil)
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	object.SetName("a")
	request := policies.NewRequest(admissionv1.Create, "n", "a")
	request.DryRun = ptr.To(true)
	set.Validate(t.Context(), policies.Input{Object: object, Request: request})

	slices.Sort(told.failures)
	if diff := cmp.Diff([]string{"broken text", "costly limit", "unset evaluation", "without params"}, told.failures); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
	want := map[string]bool{
		"broken StageSet": false, "costly StageSet": true, "denies StageSet": true, "unset StageSet": true, "without StageSet": false,
	}
	if diff := cmp.Diff(want, told.costs); diff != "" {
		t.Errorf("whose evaluation cost something (-want +got):\n%s", diff)
	}
	if len(told.outcomes) != 1 {
		t.Fatalf("%d outcomes", len(told.outcomes))
	}
	if got := told.outcomes[0]; got.Stored || !got.DryRun || got.Target != v1alpha1.TargetStageSet || len(got.Denied) != 5 {
		t.Errorf("outcome: %+v", got)
	}
}

// TestObservedDefaults: a mutation that cannot be evaluated is told of once, whatever failurePolicy makes of it.
func TestObservedDefaults(t *testing.T) {
	told := &seen{costs: map[string]bool{}}
	failing := sets(t, "failing", "Object{spec: Object.spec{interval: object.spec.none}}")
	ignored := failing
	ignored.Name, ignored.Spec.FailurePolicy = "ignored", v1alpha1.FailurePolicyIgnore
	set := compile(t, failing, ignored, sets(t, "p", "Object{spec: Object.spec{suspend: true}}")).Observed(told)
	claims := annotated(stageSet(t, "spec: {suspend: true}"), "spec.suspend=p") // which are proven by defaulting again
	_, err := set.Default(t.Context(), creating(claims))
	var failed policies.DefaultError
	if !errors.As(err, &failed) || len(failed) != 1 || failed[0].Policy != "failing" {
		t.Errorf("the error is %v", err)
	}
	if diff := cmp.Diff([]string{"failing evaluation", "ignored evaluation"}, told.failures); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
}
