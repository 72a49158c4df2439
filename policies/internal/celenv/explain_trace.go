package celenv

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"github.com/google/cel-go/parser"
)

// Step is the value of a part of an expression.
type Step struct {
	// Line and Column are where the part begins, EndLine and EndColumn where its last character is, all counted from 1, in
	// characters. The end is zero where it is not known.
	Line, Column, EndLine, EndColumn int
	// Text is the part.
	Text string
	// Value is what it evaluated to, as JSON has it, or why there is no value. It is cut where it is long.
	Value string
	// Loop tells that the part is in a loop: the value is that of the last item that was looked at.
	Loop bool
}

// maxStepLength bounds the text and the value of a step, in bytes.
const maxStepLength = 300

// Trace evaluates text, which has to evaluate to result, with every part of it, also those that do not matter for the
// outcome, and returns the outcome and the parts, from left to right, the larger first. The costs of CEL are not limited
// then: the context of the scope has to have a deadline, and nothing that has to be decided in time may be traced.
func (c *Compiler) Trace(text string, result Result, s *Scope) (value string, steps []Step, err error) {
	compiled, err := c.Compile(text, result)
	if err != nil {
		return "", nil, err
	}
	env := c.plain
	if result == Object || result == Patch {
		env = c.mutating
	}
	// Without what macros were called with, a loop cannot be shown as it is written.
	if env, err = env.Extend(cel.EnableMacroCallTracking()); err != nil {
		return "", nil, err
	}
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		return "", nil, newIssues(issues)
	}
	program, err := env.Program(checked,
		cel.EvalOptions(cel.OptExhaustiveEval), cel.InterruptCheckFrequency(interruptCheckFrequency))
	if err != nil {
		return "", nil, err
	}
	s.ruleSpent = 0
	outcome, details, err := program.ContextEval(s.ctx, s)
	if details != nil {
		steps = newTracer(text, checked.NativeRep(), details.State()).steps()
	}
	if err != nil {
		return "error: " + s.explain(compiled, err).Error(), steps, nil
	}
	return shown(outcome), steps, nil
}

// tracer finds the values of the parts of an expression.
type tracer struct {
	text   []rune
	tree   *ast.AST
	source *ast.SourceInfo
	state  interpreter.EvalState
	looped map[int64]bool
	// made are the parts that a macro expands to, and nobody wrote.
	made map[int64]bool
}

func newTracer(text string, tree *ast.AST, state interpreter.EvalState) *tracer {
	t := &tracer{
		text: []rune(text), tree: tree, source: tree.SourceInfo(), state: state,
		looped: map[int64]bool{}, made: map[int64]bool{},
	}
	ast.PreOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.ComprehensionKind {
			t.loop(e.AsComprehension())
		}
	}))
	// What a macro was called with was written.
	for _, call := range t.source.MacroCalls() {
		ast.PreOrderVisit(call, ast.NewExprVisitor(func(written ast.Expr) { delete(t.made, written.ID()) }))
	}
	return t
}

// loop marks the parts of a loop.
func (t *tracer) loop(loop ast.ComprehensionExpr) {
	ast.PreOrderVisit(loop.LoopStep(), ast.NewExprVisitor(func(inner ast.Expr) { t.looped[inner.ID()] = true }))
	for _, part := range []ast.Expr{loop.AccuInit(), loop.LoopCondition(), loop.LoopStep(), loop.Result()} {
		ast.PreOrderVisit(part, ast.NewExprVisitor(func(inner ast.Expr) { t.made[inner.ID()] = true }))
	}
}

func (t *tracer) steps() []Step {
	type placed struct {
		Step
		from int32
	}
	var found []placed
	seen := map[string]bool{}
	ast.PreOrderVisit(t.tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		value, known := t.state.Value(e.ID())
		if !known || t.made[e.ID()] || !t.tells(e) {
			return
		}
		text, err := parser.Unparse(e, t.source)
		from, placedAt := t.start(e)
		if err != nil || !placedAt {
			return
		}
		step := Step{
			Text: truncate(oneLine(text), maxStepLength), Value: shown(value), Loop: t.looped[e.ID()],
		}
		start := t.source.GetLocationByOffset(from)
		step.Line, step.Column = start.Line(), start.Column()+1
		if last, ok := lastOf(t.text, int(from), text); ok {
			end := t.source.GetLocationByOffset(int32(last))
			step.EndLine, step.EndColumn = end.Line(), end.Column()+1
		}
		if key := fmt.Sprint(from, text); !seen[key] {
			seen[key] = true
			found = append(found, placed{step, from})
		}
	}))
	slices.SortStableFunc(found, func(a, b placed) int {
		if a.from != b.from {
			return int(a.from - b.from)
		}
		return len(b.Text) - len(a.Text)
	})
	steps := make([]Step, 0, len(found))
	for _, f := range found {
		steps = append(steps, f.Step)
	}
	return steps
}

// tells whether the value of e says more than its text: a literal does not, and a variable alone is too much.
func (t *tracer) tells(e ast.Expr) bool {
	switch e.Kind() {
	case ast.LiteralKind:
		return false
	case ast.IdentKind:
		return t.looped[e.ID()] || e.AsIdent() == varTenant
	default:
		return true
	}
}

// start is where the first part of e is in the text.
func (t *tracer) start(e ast.Expr) (from int32, ok bool) {
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(part ast.Expr) {
		r, known := t.source.GetOffsetRange(part.ID())
		if !known {
			return
		}
		if start := r.Start - nameLength(part); !ok || start < from {
			from, ok = start, true
		}
	}))
	return from, ok
}

// lastOf is where the last character of part is in text, which has it at from, written with other white space and other
// quotes. CEL knows only where parts begin.
func lastOf(text []rune, from int, part string) (last int, ok bool) {
	at := from
	for _, want := range part {
		if unicode.IsSpace(want) {
			continue
		}
		for at < len(text) && unicode.IsSpace(text[at]) {
			at++
		}
		if at >= len(text) || text[at] != want && (want != '"' || text[at] != '\'') {
			return 0, false
		}
		last = at
		at++
	}
	return last, at > from
}

// nameLength is how long the name of a function is, whose calls are where its parenthesis is.
func nameLength(e ast.Expr) int32 {
	if e.Kind() != ast.CallKind || e.AsCall().IsMemberFunction() {
		return 0
	}
	name := e.AsCall().FunctionName()
	if _, isOperator := operators.FindReverse(name); isOperator || strings.ContainsAny(name, "_@?:!") {
		return 0
	}
	return int32(len(name))
}

// shown is value as JSON has it, on one line.
func shown(value ref.Val) string {
	switch typed := value.(type) {
	case nil:
		return "not evaluated"
	case *types.Err:
		return "error: " + truncate(oneLine(typed.Error()), maxStepLength)
	case *types.Unknown:
		return "unknown"
	case *types.Optional:
		if !typed.HasValue() {
			return "optional.none()"
		}
		return "optional.of(" + shown(typed.GetValue()) + ")"
	}
	converted, err := jsonValue(value)
	if err != nil {
		return value.Type().TypeName()
	}
	text, err := json.Marshal(converted)
	if err != nil {
		return value.Type().TypeName()
	}
	return truncate(string(text), maxStepLength)
}
