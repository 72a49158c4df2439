package celenv

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"
)

// EvalError says why an expression could not be evaluated, in words for the author of the expression and for whoever wrote
// the object it was evaluated on.
type EvalError struct {
	// Variable is the variable whose expression failed; empty if it was the expression itself.
	Variable string
	// Reads is the part of the expression that failed, such as object.spec.interval; empty if it is not known.
	Reads string
	// Message says what is wrong with it; after Reads it starts with punctuation.
	Message string
	// Limit tells that a budget or the deadline ended the evaluation.
	Limit bool
}

// Error is such as "variables.V reads R, but M" or "reads R: M".
func (e *EvalError) Error() string {
	text := e.Message
	if e.Reads != "" {
		text = "reads " + e.Reads + text
	}
	if e.Variable != "" {
		text = varVariables + "." + e.Variable + " " + text
	}
	return text
}

// inVariable is e as an error of the variable name, unless it is one of a variable that name reads.
func (e *EvalError) inVariable(name string) *EvalError {
	if e.Variable != "" || e.Limit {
		return e
	}
	in := *e
	in.Variable = name
	return &in
}

var (
	errRuleCost = &EvalError{Limit: true, Message: fmt.Sprintf(
		"costs more than %d units: bound the lists it loops over, and do not nest loops", RuleCostLimit)}
	errRequestCost = &EvalError{Limit: true, Message: fmt.Sprintf(
		"was not evaluated: the expressions of the request cost more than %d units, and those of this policy more than its share",
		RequestCostLimit)}
	errDeadline = &EvalError{Limit: true, Message: "was not evaluated in time"}
	errChecks   = &EvalError{Limit: true, Message: fmt.Sprintf(
		"was not evaluated: the request needs more than %d authorizer checks, and this policy more than its share",
		MaxChecks)}
	errSilent = &EvalError{Limit: true, Message: "was not evaluated: the API server did not answer in time what authorizer asked"}
)

// maxReadsLength bounds how much of an expression an error repeats.
const maxReadsLength = 200

// explain turns an error of cel-go into one that says what was read.
func (s *Scope) explain(x *Expression, err error) *EvalError {
	var known *EvalError
	if errors.As(err, &known) {
		return known
	}
	if limit := cancelled(err); limit != nil {
		return limit
	}
	message := oneLine(err.Error())
	var failed *types.Err
	if !errors.As(err, &failed) {
		return &EvalError{Message: "fails: " + message}
	}
	node := find(x.tree.Expr(), failed.NodeID())
	if node == nil {
		return &EvalError{Message: "fails: " + message}
	}
	text, unparsable := parser.Unparse(node, x.tree.SourceInfo())
	if unparsable != nil {
		return &EvalError{Message: "fails: " + message}
	}
	explained := &EvalError{Reads: truncate(oneLine(text), maxReadsLength), Message: ": " + message}
	if hint := s.hint(root(node)); hint != "" {
		explained.Message = ", but " + hint
	} else if key, missing := strings.CutPrefix(message, "no such key: "); missing {
		explained.Message = ", but " + key + " is not set (guard it with has() or .?)"
	}
	return explained
}

// hint says why the variable name has nothing to read.
func (s *Scope) hint(name string) string {
	switch {
	case name == varObject && s.object == none:
		return fmt.Sprintf("this is a %s: object is null, use oldObject", s.evaluation.operation)
	case name == varOldObject && s.oldObject == none:
		return fmt.Sprintf("this is a %s: oldObject is null", s.evaluation.operation)
	case name == varNamespace && s.evaluation.namespace == types.NullValue:
		return "the Namespace could not be read"
	case name == varParams && s.params == none:
		return "params is null"
	case (name == varAuthorizer || name == varRequestResource) && s.evaluation.authorizer == nil:
		return "there is no authorizer to ask here"
	default:
		return ""
	}
}

// find is the node with the identity id.
func find(e ast.Expr, id int64) ast.Expr {
	var found ast.Expr
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(node ast.Expr) {
		if found == nil && node.ID() == id {
			found = node
		}
	}))
	return found
}

// root is the variable that a chain of selections, indexes and member calls starts at; empty if it starts at something else.
func root(e ast.Expr) string {
	for {
		switch e.Kind() {
		case ast.IdentKind:
			return strings.TrimPrefix(e.AsIdent(), ".")
		case ast.SelectKind:
			e = e.AsSelect().Operand()
		case ast.CallKind:
			call := e.AsCall()
			switch {
			case call.IsMemberFunction():
				e = call.Target()
			case len(call.Args()) == 2 && isIndex(call.FunctionName()):
				e = call.Args()[0]
			default:
				return ""
			}
		default:
			return ""
		}
	}
}

// oneLine joins the lines of text.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), " ")
}

// truncate is text, cut at a character boundary so that it has at most limit bytes; what is cut is shown by an ellipsis.
func truncate(text string, limit int) string {
	const ellipsis = "…"
	if len(text) <= limit {
		return text
	}
	end := limit - len(ellipsis)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + ellipsis
}
