package app

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/stagesetctl/files"
	"github.com/stageset/stageset/stagesetctl/report"
)

// judge evaluates the policies on what is in documents: on StageSets, as the API server would have it done, on sources, and
// on everything else as an object that a stage renders. With --stageset, everything but its sources is such an object.
func (r rules) judge(ctx context.Context, a *asked, documents []files.Document) ([]report.Suite, error) {
	if a.owner != nil {
		var err error
		if a.owner, err = r.defaulted(ctx, a); err != nil {
			return nil, fmt.Errorf("--stageset: %w", err)
		}
	}
	var suites []report.Suite
	known := newScopes(documents)
	for _, document := range documents {
		var found []report.Suite
		var err error
		if problems := document.Unserved(); len(problems) > 0 {
			return nil, problems
		}
		switch {
		case isStageSet(document) && a.owner == nil:
			found, err = r.judgeStageSet(ctx, a, document)
		case isSource(document):
			found, err = r.judgeSource(ctx, a, document, known)
		default:
			found, err = r.judgeManifest(ctx, a, document, known)
		}
		if err != nil {
			return nil, err
		}
		suites = append(suites, found...)
	}
	return suites, nil
}

// defaulted is the StageSet of --stageset, as the reconciler works with it.
func (r rules) defaulted(ctx context.Context, a *asked) (*unstructured.Unstructured, error) {
	namespace, err := a.namespaceOf(a.owner.GetNamespace())
	if err != nil {
		return nil, err
	}
	return r.defaulting.Default(ctx, policies.Input{Object: a.owner, Namespace: namespace})
}

// judgeStageSet does what the API server does with the request for a StageSet: it decodes, fills in, has policies fill in,
// holds it against the schema, and asks the policies if it could be stored.
func (r rules) judgeStageSet(ctx context.Context, a *asked, d files.Document) ([]report.Suite, error) {
	object, problems, err := decodeStageSet(d)
	if err != nil {
		return nil, err
	}
	in, err := a.request(d, object)
	if err != nil {
		return nil, err
	}
	suite := report.Suite{Name: describe(object), Path: d.Path, Line: d.Line}
	if in.Object != nil {
		filledIn, err := r.defaulting.Default(ctx, in)
		if err != nil {
			suite.Cases = append(suite.Cases, report.Case{Name: "mutations", Failures: []string{d.At("spec", err.Error()).Error()}})
		}
		in.Object = filledIn
		if err := fillIn(in.Object); err != nil {
			return nil, err
		}
		invalid, err := invalidStageSet(ctx, d, in.Object)
		if err != nil {
			return nil, err
		}
		problems = append(problems, invalid...)
		suite.Object = in.Object.Object
	}
	if len(problems) > 0 {
		suite.Cases = append(suite.Cases, report.Case{Name: "schema", Failures: lines(problems.Sort())})
		return []report.Suite{suite}, nil
	}
	suite.Cases = append(suite.Cases, r.verdicts(d, v1alpha1.TargetStageSet, func(set *policies.Set) policies.Decision {
		return set.Validate(ctx, in)
	})...)
	return []report.Suite{suite}, nil
}

// judgeSource judges a source as that of each stage that uses it, or only as that of --stage. One that no stage of
// --stageset uses is rendered.
func (r rules) judgeSource(ctx context.Context, a *asked, d files.Document, known scopes) ([]report.Suite, error) {
	facts, err := factsOf(d)
	if err != nil {
		return nil, err
	}
	stages := a.uses(d)
	if len(stages) == 0 {
		return r.judgeManifest(ctx, a, d, known)
	}
	var suites []report.Suite
	for _, stage := range stages {
		if a.stage != "" && a.owner != nil && stage != a.stage {
			continue
		}
		in, err := a.source(stage, facts)
		if err != nil {
			return nil, err
		}
		suite := report.Suite{Name: describe(d.Object()), Path: d.Path, Line: d.Line}
		if a.owner != nil {
			suite.Name += " of stage " + in.Stage
		}
		suite.Cases = r.verdicts(d, v1alpha1.TargetSource, func(set *policies.Set) policies.Decision {
			return set.ValidateSource(ctx, in)
		})
		suites = append(suites, suite)
	}
	return suites, nil
}

func (r rules) judgeManifest(ctx context.Context, a *asked, d files.Document, known scopes) ([]report.Suite, error) {
	in, err := a.manifest(d, known)
	if err != nil {
		return nil, err
	}
	suite := report.Suite{Name: describe(in.Object), Path: d.Path, Line: d.Line}
	suite.Cases = r.verdicts(d, v1alpha1.TargetManifest, func(set *policies.Set) policies.Decision {
		return set.ValidateManifest(ctx, in)
	})
	return []report.Suite{suite}, nil
}

// describe is an object as messages name it, such as "Deployment.apps shop/web".
func describe(object *unstructured.Unstructured) string {
	kind := object.GroupVersionKind().GroupKind().String()
	if object.GetKind() == kindStageSet {
		kind = kindStageSet
	}
	if namespace := object.GetNamespace(); namespace != "" {
		return kind + " " + namespace + "/" + object.GetName()
	}
	return kind + " " + object.GetName()
}

// verdicts are what each policy with the target says of the object in d.
func (r rules) verdicts(d files.Document, target v1alpha1.Target, ask func(*policies.Set) policies.Decision) []report.Case {
	cases := []report.Case{}
	for _, policy := range r.validating {
		if policy.target == target {
			cases = append(cases, verdict(d, policy.name, ask(policy.set)))
		}
	}
	return cases
}

// verdict is what the policy called name says of the object in d.
func verdict(d files.Document, name string, decision policies.Decision) report.Case {
	one := report.Case{Name: name}
	text := func(prefix string, v policies.Violation) string {
		if v.Field != "" {
			prefix += v.Field + ": "
		}
		return d.At(v.Field, prefix+v.String()).Error()
	}
	add := func(action v1alpha1.ValidationAction, list []policies.Violation) {
		for _, v := range list {
			one.Violations = append(one.Violations, report.Violation{
				Action: string(action), Policy: v.Policy, Rule: v.Rule, Field: v.Field, Message: v.Message,
			})
			switch action {
			case v1alpha1.ValidationActionDeny:
				one.Failures = append(one.Failures, text("", v))
			case v1alpha1.ValidationActionWarn:
				one.Notes = append(one.Notes, text("warning: ", v))
			default:
				one.Notes = append(one.Notes, text("audited: ", v))
			}
		}
	}
	add(v1alpha1.ValidationActionDeny, decision.Denied)
	add(v1alpha1.ValidationActionWarn, decision.Warned)
	add(v1alpha1.ValidationActionAudit, decision.Audited)
	for _, v := range decision.Ignored {
		one.Notes = append(one.Notes, text("ignored: ", v))
	}
	return one
}

// lines are problems, each as a line.
func lines(problems files.Problems) []string {
	all := make([]string, 0, len(problems))
	for _, problem := range problems {
		all = append(all, problem.Error())
	}
	return all
}
