package celenv

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

const (
	// MaxExpressionLength is the longest text that is compiled, in bytes.
	MaxExpressionLength = 10 << 10
	// RuleCostLimit bounds the evaluation of one expression, with the variables that it is the first to read, in the cost
	// units of CEL. It bounds work and memory, but not time: mostly that is 0.2 s on a busy core, but cel-go v0.29 searches a
	// stack that grows with every iteration, so that a loop over 20,000 items takes longer for half of the units. Whoever
	// evaluates gives the context a deadline.
	RuleCostLimit = 200_000
	// interruptCheckFrequency is after how many iterations of a comprehension the context is looked at.
	interruptCheckFrequency = 100
)

// Result is what an expression has to evaluate to.
type Result int

const (
	// Bool is for conditions and rules.
	Bool Result = iota
	// String is for messages.
	String
	// Any is for variables.
	Any
	// Object is for mutations with an apply configuration.
	Object
	// Patch is for mutations with a JSON patch.
	Patch
	// Annotation is for annotations of audit events: a string, or null for none.
	Annotation
)

var (
	constructedType = types.NewObjectType(mutation.ObjectTypeName)
	patchType       = types.NewListType(types.NewObjectType(mutation.JSONPatchTypeName))
)

// accepts tells whether an expression of the type may be used for r.
func (r Result) accepts(t *cel.Type) bool {
	switch r {
	case Any:
		return true
	case String:
		return t.IsExactType(cel.StringType)
	case Object:
		return t.IsExactType(constructedType)
	case Patch:
		return t.IsExactType(patchType)
	case Annotation:
		return t.IsExactType(cel.StringType) || t.IsExactType(cel.NullType)
	default:
		return t.IsExactType(cel.BoolType)
	}
}

// String is r in the words of CEL.
func (r Result) String() string {
	return [...]string{"bool", "string", "any value", "Object", "list of JSONPatch", "string or null"}[r]
}

// Compiler compiles expressions that see the same variables. It is immutable and safe for concurrent use.
type Compiler struct {
	plain, mutating *cel.Env
	// unmetered is nil if nothing is going to be evaluated.
	unmetered *cel.Env
	// parts are what is known of the variables of the policy.
	parts map[string]part
}

// NewCompiler is the compiler for expressions about subject that do not read the variable variables. All of its kind have
// the same environment, which is most of what a compiled policy would weigh.
func NewCompiler(text Text, subject Subject) (*Compiler, error) {
	shared, err := untyped[subject]()
	if err != nil {
		return nil, err
	}
	return newCompiler(shared, text)
}

// NewTypedCompiler is a compiler that knows the fields of StageSets: their type is the schema ref of schemas. It finds more
// mistakes than evaluation needs to, and is for checking alone: a value is not converted to that type.
func NewTypedCompiler(text Text, subject Subject, schemas map[string]*spec.Schema, ref string) (*Compiler, error) {
	typed, err := newTypedDialect(subject, schemas, ref)
	if err != nil {
		return nil, err
	}
	return newCompiler(typed, text)
}

func newCompiler(d dialect, text Text) (*Compiler, error) {
	plain, err := d.plain.Env(text.envType())
	if err != nil {
		return nil, err
	}
	mutating, err := d.mutating.Env(text.envType())
	if err != nil {
		return nil, err
	}
	return &Compiler{plain: plain, mutating: mutating, unmetered: d.unmetered}, nil
}

// withVariables is the compiler for expressions that may also read variables, of the types that declared has. More may be
// declared later, as long as nothing is evaluated.
func (c *Compiler) withVariables(declared variableTypes) (*Compiler, error) {
	options := []cel.EnvOption{
		common.ResolverEnvOption(declared),
		cel.Variable(varVariables, declared.Type()),
	}
	plain, err := c.plain.Extend(options...)
	if err != nil {
		return nil, fmt.Errorf("declaring variables: %w", err)
	}
	mutating, err := c.mutating.Extend(options...)
	if err != nil {
		return nil, fmt.Errorf("declaring variables: %w", err)
	}
	return &Compiler{plain: plain, mutating: mutating, unmetered: c.unmetered, parts: map[string]part{}}, nil
}

// Compile compiles text, which has to evaluate to result. The error is Issues.
func (c *Compiler) Compile(text string, result Result) (*Expression, error) {
	if strings.TrimSpace(text) == "" {
		return nil, Issues{{Message: "is empty"}}
	}
	if len(text) > MaxExpressionLength {
		return nil, Issues{{Message: fmt.Sprintf("is %d bytes long, more than %d", len(text), MaxExpressionLength)}}
	}
	env := c.plain
	if result == Object || result == Patch {
		env = c.mutating
	}
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, newIssues(issues)
	}
	if !result.accepts(checked.OutputType()) {
		return nil, Issues{{Message: fmt.Sprintf("evaluates to %s, not to %s", checked.OutputType(), result)}}
	}
	program, err := env.Program(checked, programOptions...)
	if err != nil {
		return nil, Issues{{Message: err.Error()}}
	}
	compiled := &Expression{text: text, program: program, tree: checked.NativeRep(), output: checked.OutputType()}
	if c.unmetered != nil && env == c.plain {
		c.withoutMeter(compiled, checked)
	}
	return compiled, nil
}

// programOptions override those of the API server's environment.
var programOptions = []cel.ProgramOption{
	cel.CostLimit(RuleCostLimit),
	cel.CostTracking(costs{}),
	cel.InterruptCheckFrequency(interruptCheckFrequency),
}

// costs are the API server's, but for the authorizer's checks: those cost 350,000 each there, so that no rule could ask for
// each of several stages. They are counted apart, see checker.
type costs struct {
	library.CostEstimator
}

// CallCost implements interpreter.ActualCostEstimator.
func (c costs) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	if function == "check" {
		one := uint64(1)
		return &one
	}
	return c.CostEstimator.CallCost(function, overload, args, result)
}

// Issue is one thing that is wrong with the text of an expression.
type Issue struct {
	// Line and Column are where, counted from 1; zero if it is the text as a whole.
	Line, Column int
	// Message says what, on one line.
	Message string
}

// Issues is everything that is wrong with the text of an expression.
type Issues []Issue

// Error has an issue in each line.
func (i Issues) Error() string {
	lines := make([]string, 0, len(i))
	for _, issue := range i {
		if issue.Line > 0 {
			lines = append(lines, fmt.Sprintf("line %d, column %d: %s", issue.Line, issue.Column, issue.Message))
		} else {
			lines = append(lines, issue.Message)
		}
	}
	return strings.Join(lines, "\n")
}

func newIssues(issues *cel.Issues) Issues {
	found := map[Issue]bool{}
	for _, e := range issues.Errors() {
		// Expressions have no container, which cel-go would not say either.
		issue := Issue{Message: strings.TrimSuffix(oneLine(e.Message), " (in container '')")}
		if e.Location.Line() > 0 {
			// cel-go counts columns from 0.
			issue.Line, issue.Column = e.Location.Line(), e.Location.Column()+1
		}
		found[issue] = true
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b Issue) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		if a.Column != b.Column {
			return a.Column - b.Column
		}
		return strings.Compare(a.Message, b.Message)
	})
}
