package health

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/policies"
)

// Expressions are a stage's own words for the health of some kinds, compiled. They do not change.
type Expressions struct {
	kinds map[schema.GroupKind]ofKind
}

// ofKind are the expressions of one kind; what is not set is nil.
type ofKind struct {
	inProgress, failed, current *policies.Expression
}

// Compile compiles the expressions of a stage. Its error names everything that is wrong, with kind, expression, line and
// column.
func Compile(list []v1.ReadyExpressions) (Expressions, error) {
	all := Expressions{kinds: map[schema.GroupKind]ofKind{}}
	var problems []string
	for _, item := range list {
		kind := schema.FromAPIVersionAndKind(item.APIVersion, item.Kind).GroupKind()
		report := func(problem string) {
			problems = append(problems, fmt.Sprintf("readyChecks.exprs of %s %s: %s", item.APIVersion, item.Kind, problem))
		}
		if _, twice := all.kinds[kind]; twice {
			report("the kind has expressions already: the version does not matter")
			continue
		}
		compile := func(name, text string) *policies.Expression {
			compiled, err := policies.NewExpression(text)
			if err != nil {
				report(name + ": " + err.Error())
			}
			return compiled
		}
		compiled := ofKind{current: compile("current", item.Current)}
		if item.InProgress != "" {
			compiled.inProgress = compile("inProgress", item.InProgress)
		}
		if item.Failed != "" {
			compiled.failed = compile("failed", item.Failed)
		}
		all.kinds[kind] = compiled
	}
	if len(problems) > 0 {
		return Expressions{}, errors.New(strings.Join(problems, "; "))
	}
	return all, nil
}

// Judge says whether objects of one stage are healthy: by the stage's expressions, and else as Of does. It is safe for
// concurrent use; a nil Judge has no expressions.
type Judge struct {
	expressions Expressions

	mu     sync.Mutex
	budget *policies.Budget
}

// NewJudge is a judge of a stage with these expressions.
func NewJudge(expressions Expressions) *Judge { return &Judge{expressions: expressions} }

// Refill gives the expressions their whole budget again: one look at all objects of a stage has one.
func (j *Judge) Refill() {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.budget = nil
}

// ByExistence is true for kinds that are healthy as soon as they exist.
func (j *Judge) ByExistence(kind schema.GroupKind) bool {
	_, special := j.of(kind)
	return !special && existence[kind]
}

// NeedsToExist is true for an object that is healthy as soon as it exists: one of such a kind, and a Service that asks for
// no load balancer.
func (j *Judge) NeedsToExist(obj *unstructured.Unstructured) bool {
	kind := obj.GroupVersionKind().GroupKind()
	if kind != (schema.GroupKind{Kind: "Service"}) {
		return j.ByExistence(kind)
	}
	_, special := j.of(kind)
	asked, _, err := unstructured.NestedString(obj.Object, "spec", "type")
	return !special && err == nil && asked != "LoadBalancer"
}

func (j *Judge) of(kind schema.GroupKind) (ofKind, bool) {
	if j == nil {
		return ofKind{}, false
	}
	found, special := j.expressions.kinds[kind]
	return found, special
}

// Of is the health of an object. What an expression cannot be evaluated for is Progressing.
func (j *Judge) Of(ctx context.Context, obj *unstructured.Unstructured) Result {
	expressions, special := j.of(obj.GroupVersionKind().GroupKind())
	switch {
	case !special:
		return Of(obj)
	case obj.GetDeletionTimestamp() != nil:
		return deleting
	case outdated(obj):
		return Result{Verdict: Progressing, Message: "its controller has not seen the current generation"}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.budget == nil {
		j.budget = policies.NewBudget(ctx)
	}
	for _, question := range []struct {
		name       string
		expression *policies.Expression
		yes        Result
	}{
		{"inProgress", expressions.inProgress, Result{Verdict: Progressing, Message: "inProgress of readyChecks.exprs holds"}},
		{"failed", expressions.failed, Result{Verdict: Failed, Message: "failed of readyChecks.exprs holds"}},
		{"current", expressions.current, Result{}},
	} {
		if question.expression == nil {
			continue
		}
		holds, err := question.expression.Holds(ctx, obj.Object, j.budget)
		if err != nil {
			return Result{Verdict: Progressing, Message: question.name + " of readyChecks.exprs " + why(obj, err)}
		}
		if holds {
			return question.yes
		}
	}
	return Result{Verdict: Progressing, Message: "current of readyChecks.exprs does not hold"}
}

// why is what an evaluation says, unless it may quote a Secret.
func why(obj *unstructured.Unstructured, err error) string {
	if obj.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Secret"}) {
		return "cannot be evaluated: why is withheld, because it may quote a value of the Secret"
	}
	return err.Error()
}

// outdated is true when the object's controller says that it has seen an earlier generation.
func outdated(obj *unstructured.Unstructured) bool {
	observed, says, err := unstructured.NestedInt64(obj.Object, "status", "observedGeneration")
	return err == nil && says && observed < obj.GetGeneration()
}
