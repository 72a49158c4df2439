package policies

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stageset/stageset/policies/internal/celenv"
)

// expressionTimeout bounds the evaluation of an Expression.
const expressionTimeout = time.Second

// Expression is a condition about one object of a cluster, in the CEL of policies. The variable object is the object;
// metadata, spec and status are its fields, empty where it has none. It is immutable and safe for concurrent use.
type Expression struct {
	compiled *celenv.Expression
}

// NewExpression compiles text, which has to evaluate to bool. The error is on one line and says where in the text what is
// wrong, by line and column from 1.
func NewExpression(text string) (*Expression, error) {
	compiler, err := celenv.NewCompiler(celenv.Stored, celenv.Live)
	if err != nil {
		return nil, err
	}
	compiled, err := compiler.Compile(text, celenv.Bool)
	if err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return &Expression{compiled: compiled}, nil
}

// Budget is what a number of evaluations may cost together: ten times what one may. It is not safe for concurrent use.
type Budget struct {
	evaluation *celenv.Evaluation
	group      *celenv.Group
}

// NewBudget is a budget of which nothing is spent.
func NewBudget(ctx context.Context) *Budget {
	evaluation := celenv.NewEvaluation(ctx, celenv.Values{}, 1)
	return &Budget{evaluation: evaluation, group: evaluation.Group(nil, nil)}
}

// Holds evaluates x on an object, which is not changed. The error is for people and says why there is no answer: the object
// lacks what is read, or a limit was reached; it may quote values of the object.
func (x *Expression) Holds(ctx context.Context, object map[string]any, within *Budget) (bool, error) {
	if within.evaluation.Spent() > celenv.RequestCostLimit {
		return false, fmt.Errorf("was not evaluated: the expressions of all objects together cost more than %d units",
			celenv.RequestCostLimit)
	}
	ctx, cancel := context.WithTimeout(ctx, expressionTimeout)
	defer cancel()
	return x.compiled.Bool(within.group.Scope(ctx, object, nil))
}
