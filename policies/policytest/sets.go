package policytest

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

// sets are what a policy is compiled to for its tests: once for all that have the same parameters in the same kind of
// namespace, because to compile takes longer than to evaluate.
type sets struct {
	policy   *v1alpha1.StageSetPolicy
	compiled map[setting]*policies.Set
}

// setting is what tests say of the installation.
type setting struct {
	params   string
	platform bool
}

func newSets(policy *v1alpha1.StageSetPolicy) *sets {
	return &sets{policy: policy, compiled: map[setting]*policies.Set{}}
}

// of is the set for a test.
func (s *sets) of(ctx context.Context, test *v1alpha1.PolicyTest) (*policies.Set, error) {
	said := setting{platform: test.Tenant != nil && !*test.Tenant}
	if test.Params != nil {
		said.params = string(test.Params.Raw)
	}
	if set, ok := s.compiled[said]; ok {
		return set, nil
	}
	// Tests say what their parameters are; those that say nothing have none.
	options := policies.Options{Lookup: noParams{}}
	if said.platform {
		options.PlatformNamespaces = []string{policies.AllNamespaces}
	}
	params, err := decode("params", test.Params)
	if err != nil {
		return nil, err
	}
	if params != nil {
		options.Params = map[string]map[string]any{s.policy.Name: params}
	}
	if s.policy.Spec.ParamKind != nil {
		// Whether an installation allows the kind is not for the test.
		options.ParamResources = []v1alpha1.ParamKind{*s.policy.Spec.ParamKind}
	}
	set, err := policies.Compile(ctx, []v1alpha1.StageSetPolicy{*s.policy}, options)
	if err != nil {
		return nil, err
	}
	s.compiled[said] = set
	return set, nil
}

// noParams has no parameters.
type noParams struct{}

// Params implements policies.ParamLookup.
func (noParams) Params(context.Context, policies.ParamQuery) ([]*unstructured.Unstructured, error) {
	return nil, nil
}
