package app

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/builtin"
	"github.com/stageset/stageset/stagesetctl/files"
	"github.com/stageset/stageset/stagesetctl/report"
)

// rules are the policies that objects are judged by: one Set that fills in, and one for each policy that says what is wrong.
type rules struct {
	defaulting []*policies.Set
	validating []namedSet
}

type namedSet struct {
	name string
	set  *policies.Set
}

// compileRules compiles list, and the built-in policies if asked for.
func compileRules(ctx context.Context, list []files.Policy, asked asked, withBuiltin bool) (rules, error) {
	var compiled rules
	if withBuiltin {
		if err := compiled.addBuiltin(ctx, asked.config); err != nil {
			return rules{}, err
		}
	}
	all := make([]v1alpha1.StageSetPolicy, 0, len(list))
	for _, policy := range list {
		all = append(all, policy.Parsed)
	}
	defaulting, err := compile(ctx, list, asked.options(names(all)...), all...)
	if err != nil {
		return rules{}, err
	}
	compiled.defaulting = append(compiled.defaulting, defaulting)
	for _, policy := range all {
		set, err := policies.Compile(ctx, []v1alpha1.StageSetPolicy{policy}, asked.options(policy.Name))
		if err != nil {
			return rules{}, err
		}
		compiled.validating = append(compiled.validating, namedSet{policy.Name, set})
	}
	return compiled, nil
}

// addBuiltin adds the built-in policies that config does not switch off.
func (r *rules) addBuiltin(ctx context.Context, config policies.Config) error {
	defaulting, err := builtin.Compile(ctx, config)
	if err != nil {
		return err
	}
	r.defaulting = append(r.defaulting, defaulting)
	list, err := builtin.Policies()
	if err != nil {
		return err
	}
	for _, name := range names(list) {
		if config.Rules[name] == policies.SwitchOff {
			continue
		}
		alone := config
		alone.Rules = map[string]policies.Switch{}
		for _, other := range names(list) {
			alone.Rules[other] = policies.SwitchOff
		}
		delete(alone.Rules, name)
		if setting, ok := config.Rules[name]; ok {
			alone.Rules[name] = setting
		}
		set, err := builtin.Compile(ctx, alone)
		if err != nil {
			return err
		}
		r.validating = append(r.validating, namedSet{name, set})
	}
	return nil
}

// judge evaluates policies on objects: all mutations, then each policy's validations.
func (r rules) judge(ctx context.Context, asked asked, documents []files.Document) []report.Suite {
	var suites []report.Suite
	for _, document := range documents {
		in := asked.input(document.Object())
		suite := report.Suite{
			Name: "StageSet " + in.Namespace.Name + "/" + in.Object.GetName(), Path: document.Path, Line: document.Line,
		}
		for _, set := range r.defaulting {
			var err error
			if in.Object, err = set.Default(ctx, in); err != nil {
				suite.Cases = append(suite.Cases, report.Case{Name: "mutations", Failures: []string{err.Error()}})
			}
		}
		suite.Object = in.Object.Object
		for _, policy := range r.validating {
			suite.Cases = append(suite.Cases, verdict(policy.name, policy.set.Validate(ctx, in)))
		}
		suites = append(suites, suite)
	}
	return suites
}

// compile is a Set of policies; the error says where in the files of list they are wrong.
func compile(
	ctx context.Context, list []files.Policy, options policies.Options, all ...v1alpha1.StageSetPolicy,
) (*policies.Set, error) {
	set, err := policies.Compile(ctx, all, options)
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
		if len(own) == 0 {
			continue
		}
		problems = append(problems, located(policy, own)...)
	}
	return nil, problems.Sort()
}

// verdict is what the policy called name says.
func verdict(name string, decision policies.Decision) report.Case {
	one := report.Case{Name: name}
	add := func(action v1alpha1.ValidationAction, list []policies.Violation) {
		for _, v := range list {
			one.Violations = append(one.Violations, report.Violation{
				Action: string(action), Policy: v.Policy, Rule: v.Rule, Field: v.Field, Message: v.Message,
			})
			text := fmt.Sprintf("%s: %s", v.Field, v)
			if action == v1alpha1.ValidationActionDeny {
				one.Failures = append(one.Failures, text)
			} else {
				one.Notes = append(one.Notes, string(action)+": "+text)
			}
		}
	}
	add(v1alpha1.ValidationActionDeny, decision.Denied)
	add(v1alpha1.ValidationActionWarn, decision.Warned)
	add(v1alpha1.ValidationActionAudit, decision.Audited)
	for _, v := range decision.Ignored {
		one.Notes = append(one.Notes, "Ignored: "+v.String())
	}
	return one
}
