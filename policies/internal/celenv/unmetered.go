package celenv

import (
	"fmt"
	"maps"
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

// unmeteredProgram is the program of an expression that costs little on small objects, with what it costs then at most. It
// is nil if that cannot be told, or may be more.
func (c *Compiler) unmeteredProgram(checked *cel.Ast) (cel.Program, uint64) {
	if c.unmetered == nil {
		return nil, 0
	}
	most := bound(checked.NativeRep())
	if most > unmeteredCost {
		return nil, 0
	}
	program, err := c.unmetered.Program(checked, cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, 0
	}
	return program, uint64(most)
}
