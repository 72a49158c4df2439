package preflight

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/health"
	"github.com/stageset/stageset/reconciler/inventory"
)

// ReadyCheck is an object whose health a stage waits for although it does not apply it.
type ReadyCheck struct {
	Kind schema.GroupVersionKind
	// Key names the object; its namespace is empty for a kind that has none.
	Key inventory.Key

	// given is true when the release may give the right to read it before it is looked at.
	given bool
}

// open makes the stages of what is to be checked, without objects.
func open(ctx context.Context, in Input) ([]ClearedStage, error) {
	stages := make([]ClearedStage, 0, len(in.Stages))
	var problems []error
	for number, stage := range in.Stages {
		checks, judge, err := ready(ctx, stage)
		problems = append(problems, err)
		stages = append(stages, ClearedStage{
			number: number, name: stage.Name, account: stage.Account, target: stage.Target, checks: checks, judge: judge,
			conflicts: stage.Conflicts, prunes: stage.Prunes,
		})
	}
	return stages, failure.Join(problems...)
}

// ready finds out what the stage's readyChecks mean. What can never be healthy is wrong in the spec, and no matter of time:
// the error is a *failure.Error that names all of it.
func ready(ctx context.Context, stage Stage) ([]ReadyCheck, *health.Judge, error) {
	if stage.Ready == nil {
		return nil, nil, nil
	}
	var problems []string
	expressions, err := health.Compile(stage.Ready.Exprs)
	if err != nil {
		problems = append(problems, err.Error())
	}
	checks := make([]ReadyCheck, 0, len(stage.Ready.Checks))
	for _, ref := range stage.Ready.Checks {
		check, problem, err := resolve(ctx, stage, ref)
		if err != nil {
			return nil, nil, cannotAsk(stage.Name, stage.Account, err)
		}
		if problem != "" {
			problems = append(problems, fmt.Sprintf("readyChecks.checks of %s %s %s: %s", ref.APIVersion, ref.Kind, ref.Name, problem))
		}
		checks = append(checks, check)
	}
	if len(problems) > 0 {
		return nil, nil, failure.NewStalled(v1.ReasonInvalidSpec, "stage %s: %s", stage.Name, strings.Join(problems, "; ")).
			InStage(stage.Name)
	}
	return checks, health.NewJudge(expressions), nil
}

// resolve finds the object of a reference, or says why there can be none.
func resolve(ctx context.Context, stage Stage, ref v1.ReadyCheck) (check ReadyCheck, problem string, err error) {
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil || version.Version == "" {
		return ReadyCheck{}, "apiVersion is no group and version", nil
	}
	if wrong := content.IsPathSegmentName(ref.Name); len(wrong) > 0 {
		return ReadyCheck{}, "the name " + strings.Join(wrong, ", "), nil
	}
	check = ReadyCheck{Kind: version.WithKind(ref.Kind)}
	check.Key = inventory.Key{Group: version.Group, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
	namespaced, known, err := stage.Target.Scope(ctx, check.Kind.GroupKind())
	switch {
	case err != nil:
		return ReadyCheck{}, "", err
	case !known && !strings.Contains(version.Group, "."):
		// Such a group is one of Kubernetes' own: nothing can be installed that adds a kind to it.
		return ReadyCheck{}, "there is no such kind", nil
	case known && !namespaced:
		check.Key.Namespace = ""
	}
	return check, "", nil
}
