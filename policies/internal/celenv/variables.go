package celenv

import (
	"fmt"
	"maps"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apiserver/pkg/cel/common"
)

// Definition is a variable as its author wrote it.
type Definition struct {
	Name, Expression string
}

// Variables are the compiled variables of a policy, in order. The nil Variables are none.
type Variables struct {
	names       []string
	expressions map[string]*Expression
	broken      map[string]error
	needing     map[string]bool
}

// CompileVariables compiles definitions, each of which sees those before it, and is a compiler for the expressions that see
// all of them. The errors are Issues, by the name of the variable; a variable with an error is declared as dynamic, and
// cannot be evaluated.
func (c *Compiler) CompileVariables(definitions []Definition) (*Compiler, *Variables, map[string]error) {
	if len(definitions) == 0 {
		return c, nil, nil
	}
	declared := variableTypes{}
	compiler, err := c.withVariables(declared)
	if err != nil {
		return c, nil, map[string]error{definitions[0].Name: err}
	}
	variables := &Variables{expressions: map[string]*Expression{}, broken: map[string]error{}, needing: map[string]bool{}}
	for _, definition := range definitions {
		if _, twice := declared[definition.Name]; twice {
			// The first one stays: the second could read itself, without end.
			variables.broken[definition.Name] = Issues{{Message: "is defined twice"}}
			continue
		}
		expression, err := compiler.Compile(definition.Expression, Any)
		if err != nil {
			declared[definition.Name] = cel.DynType
			variables.broken[definition.Name] = err
		} else {
			declared[definition.Name] = expression.output
			variables.expressions[definition.Name] = expression
			compiler.parts[definition.Name] = expression.result
			if expression.NeedsRequest(variables) {
				variables.needing[definition.Name] = true
			}
		}
		variables.names = append(variables.names, definition.Name)
	}
	return compiler, variables, maps.Clone(variables.broken)
}

// variableTypes are the types of the fields of the variable variables.
type variableTypes map[string]*cel.Type

var variablesType = types.NewObjectType("kubernetes.variables")

var (
	_ common.TypeResolver = variableTypes{}
	_ common.ResolvedType = variableTypes{}
)

// Resolve implements common.TypeResolver.
func (v variableTypes) Resolve(name string) (common.ResolvedType, bool) {
	return v, name == variablesType.TypeName()
}

// HasTrait implements ref.Type.
func (variableTypes) HasTrait(trait int) bool { return variablesType.HasTrait(trait) }

// TypeName implements ref.Type.
func (variableTypes) TypeName() string { return variablesType.TypeName() }

// Type implements common.ResolvedType.
func (variableTypes) Type() *types.Type { return variablesType }

// Field implements common.ResolvedType.
func (v variableTypes) Field(name string) (*types.FieldType, bool) {
	t, ok := v[name]
	return &types.FieldType{Type: t}, ok
}

// FieldNames implements common.ResolvedType.
func (v variableTypes) FieldNames() ([]string, bool) { return nil, true }

// Val implements common.ResolvedType: variables are not constructed by expressions.
func (variableTypes) Val(map[string]ref.Val) ref.Val {
	return types.NewErr("variables cannot be constructed")
}

// evaluate is the value of the variable name within scope.
func (v *Variables) evaluate(scope *Scope, name string) ref.Val {
	expression, ok := v.expressions[name]
	if !ok {
		return types.WrapErr(&EvalError{Variable: name, Message: fmt.Sprintf("does not compile: %v", v.broken[name])})
	}
	value, err := scope.run(expression)
	if err != nil {
		return types.WrapErr(err.inVariable(name))
	}
	return value
}
