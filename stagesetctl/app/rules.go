package app

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/builtin"
	"github.com/stageset/stageset/stagesetctl/files"
)

// rules are the policies that objects are judged by: one Set that fills in, and one for each policy that says what is wrong.
type rules struct {
	defaulting *policies.Set
	validating []namedSet
}

type namedSet struct {
	name   string
	target v1alpha1.Target
	set    *policies.Set
}

// compileRules compiles list. The error is files.Problems if a policy does not compile.
func compileRules(ctx context.Context, list []files.Policy, asked *asked) (rules, error) {
	var compiled rules
	var err error
	if compiled.defaulting, err = compile(ctx, asked, list...); err != nil {
		return rules{}, err
	}
	for _, policy := range list {
		set, err := compile(ctx, asked, policy)
		if err != nil {
			return rules{}, err
		}
		compiled.validating = append(compiled.validating, namedSet{policy.Parsed.Name, target(&policy.Parsed.Spec), set})
	}
	return compiled, nil
}

// compile is a Set of list; the error says where in their files the policies are wrong.
func compile(ctx context.Context, asked *asked, list ...files.Policy) (*policies.Set, error) {
	parsed := make([]v1alpha1.StageSetPolicy, 0, len(list))
	for _, policy := range list {
		parsed = append(parsed, policy.Parsed)
	}
	set, err := policies.Compile(ctx, parsed, asked.options(list...))
	if err == nil {
		return set, nil
	}
	var found policies.Problems
	if !errors.As(err, &found) {
		return nil, err
	}
	var problems files.Problems
	for _, policy := range list {
		own := slices.DeleteFunc(slices.Clone(found), func(p policies.Problem) bool { return p.Policy != policy.Parsed.Name })
		problems = append(problems, located(policy, own)...)
	}
	return nil, problems.Sort()
}

// options are those of a Set of list.
func (a *asked) options(list ...files.Policy) policies.Options {
	options := policies.Options{
		PlatformNamespaces: a.config.PlatformNamespaces, TrustNamespaceKeys: a.config.TrustNamespaceKeys,
		Params: builtin.Params(a.config), Lookup: given(a.parameters), ParamResources: a.config.ParamResources,
	}
	for _, policy := range list {
		if _, builtIn := options.Params[policy.Parsed.Name]; !builtIn && len(a.parameters) == 1 {
			options.Params[policy.Parsed.Name] = a.parameters[0].Fields
		}
		if kind := policy.Parsed.Spec.ParamKind; kind != nil && a.policyConfig == "" {
			// Nothing says what the installation allows.
			options.ParamResources = append(options.ParamResources, *kind)
		}
	}
	return options
}

// given are the objects of --params.
type given []files.Document

// Params implements policies.ParamLookup.
func (g given) Params(_ context.Context, query policies.ParamQuery) ([]*unstructured.Unstructured, error) {
	if len(g) == 0 {
		return nil, errors.New("say what they are with --params")
	}
	var found []*unstructured.Unstructured
	for _, document := range g {
		object := document.Object()
		inNamespace := object.GetNamespace() == "" || object.GetNamespace() == query.Namespace
		selected := object.GetName() == query.Name
		if query.Selector != nil {
			selected = query.Selector.Matches(labels.Set(object.GetLabels()))
		}
		if object.GroupVersionKind() == query.Kind && inNamespace && selected {
			found = append(found, object)
		}
	}
	return found, nil
}
