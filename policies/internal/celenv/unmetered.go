package celenv

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/google/cel-go/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// unmeteredCost is how much, in cost units, an expression may cost at most that is not counted: some milliseconds.
//
// Counting what an expression costs takes as long as evaluating it, and leaves several times as much garbage. So it is not
// done where it is known beforehand not to matter: where the text allows for little on a small object, and the object is
// small. There the expression is not interrupted either.
const unmeteredCost = RuleCostLimit / 2

// newUnmetered is an environment with the functions and types of metered, but without the options of the API server: those
// count the cost in every program.
func newUnmetered(metered *environment.EnvSet) (*cel.Env, error) {
	env, err := metered.Env(environment.StoredExpressions)
	if err != nil {
		return nil, err
	}
	same, err := cel.NewCustomEnv(
		cel.OptionalTypes(), // for how or() and orValue() are evaluated, which is no function
		cel.CustomTypeAdapter(env.CELTypeAdapter()),
		cel.CustomTypeProvider(env.CELTypeProvider()),
		cel.FunctionDecls(slices.Collect(maps.Values(env.Functions()))...),
	)
	if err != nil {
		return nil, fmt.Errorf("declaring the functions of CEL: %w", err)
	}
	return same, nil
}

// withoutMeter adds to x, which is checked, the program that counts nothing, if it costs little on small objects.
func (c *Compiler) withoutMeter(x *Expression, checked *cel.Ast) {
	x.result = bound(x.tree, c.parts)
	if x.result.cost > unmeteredCost {
		return
	}
	program, err := c.unmetered.Program(checked, cel.EvalOptions(cel.OptOptimize))
	if err == nil {
		x.unmetered, x.bound = program, uint64(math.Ceil(x.result.cost))
	}
}
