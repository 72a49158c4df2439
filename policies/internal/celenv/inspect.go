package celenv

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"k8s.io/apiserver/pkg/cel/library"
)

// knownWithoutRequest are the fields of request that are the same whoever asks: they are known when a stored object is
// evaluated.
var knownWithoutRequest = map[string]bool{
	"kind": true, "resource": true, "subResource": true,
	"requestKind": true, "requestResource": true, "requestSubResource": true,
	"name": true, "namespace": true, "operation": true, "dryRun": true,
}

// NeedsRequest tells whether x reads who asks, or how, itself or through one of the variables: anything of request that is
// not in knownWithoutRequest, request as a whole, or authorizer. It is found in the text, not while evaluating, so that a
// rule either is or is not meant for admission alone.
func (x *Expression) NeedsRequest(variables *Variables) bool {
	for r := range reads(x.tree) {
		switch r.variable {
		case varAuthorizer, varRequestResource:
			return true
		case varRequest:
			if !knownWithoutRequest[r.field] {
				return true
			}
		case varVariables:
			if variables.needRequest(r.field) {
				return true
			}
		}
	}
	return false
}

// needRequest tells whether the variable name reads who asks; an empty name is all of them.
func (v *Variables) needRequest(name string) bool {
	if v == nil {
		return false
	}
	return v.needing[name] || name == "" && len(v.needing) > 0
}

// ReadsObject tells whether x reads a field of object, which is null for a deletion.
func (x *Expression) ReadsObject() bool {
	for r := range reads(x.tree) {
		if r.variable == varObject && r.field != "" {
			return true
		}
	}
	return false
}

// TellsDeletion tells whether x asks if this is a deletion: it reads request.operation, or compares object with null.
func (x *Expression) TellsDeletion() bool {
	found := reads(x.tree)[read{varRequest, "operation"}]
	ast.PreOrderVisit(x.tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind {
			return
		}
		call := e.AsCall()
		if call.FunctionName() == operators.Equals || call.FunctionName() == operators.NotEquals {
			object := slices.ContainsFunc(call.Args(), func(arg ast.Expr) bool {
				return arg.Kind() == ast.IdentKind && arg.AsIdent() == varObject
			})
			null := slices.ContainsFunc(call.Args(), func(arg ast.Expr) bool {
				return arg.Kind() == ast.LiteralKind && arg.AsLiteral() == types.NullValue
			})
			found = found || object && null
		}
	}))
	return found
}

// ReadsVariable tells whether x reads the variable variables.<name>, or variables as a whole.
func (x *Expression) ReadsVariable(name string) bool {
	found := reads(x.tree)
	return found[read{varVariables, name}] || found[read{varVariables, ""}]
}

// Checks counts the places in x that have the authorizer check something, and tells whether one of them is in a loop.
func (x *Expression) Checks() (count int, looped bool) {
	x.countChecks(x.tree.Expr(), false, &count, &looped)
	return count, looped
}

func (x *Expression) countChecks(e ast.Expr, inLoop bool, count *int, looped *bool) {
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(part ast.Expr) {
		switch part.Kind() {
		case ast.CallKind:
			if x.tree.GetType(part.ID()).IsExactType(library.DecisionType) && part.AsCall().FunctionName() == "check" {
				*count++
				*looped = *looped || inLoop
			}
		case ast.ComprehensionKind:
			if !inLoop {
				within := 0 // which the visit itself counts
				x.countChecks(part.AsComprehension().LoopStep(), true, &within, looped)
			}
		}
	}))
}

// read is a variable and the field of it that is read; the field is empty if the variable is read as a whole.
type read struct {
	variable, field string
}

func reads(tree *ast.AST) map[read]bool {
	found := map[read]bool{}
	walk(tree.Expr(), nil, found)
	return found
}

// walk records what e reads. bound are the names that loops around e define: they hide variables.
func walk(e ast.Expr, bound []string, found map[read]bool) {
	switch e.Kind() {
	case ast.IdentKind:
		record(e, "", bound, found)
	case ast.SelectKind:
		selection := e.AsSelect()
		walkField(selection.Operand(), selection.FieldName(), bound, found)
	case ast.CallKind:
		walkCall(e.AsCall(), bound, found)
	case ast.ListKind:
		walkAll(e.AsList().Elements(), bound, found)
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			walk(entry.AsMapEntry().Key(), bound, found)
			walk(entry.AsMapEntry().Value(), bound, found)
		}
	case ast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			walk(field.AsStructField().Value(), bound, found)
		}
	case ast.ComprehensionKind:
		walkLoop(e.AsComprehension(), bound, found)
	}
}

func walkAll(all []ast.Expr, bound []string, found map[read]bool) {
	for _, e := range all {
		walk(e, bound, found)
	}
}

// walkField records that field of e is read.
func walkField(e ast.Expr, field string, bound []string, found map[read]bool) {
	if e.Kind() == ast.IdentKind {
		record(e, field, bound, found)
		return
	}
	walk(e, bound, found)
}

func walkCall(call ast.CallExpr, bound []string, found map[read]bool) {
	if call.IsMemberFunction() {
		walk(call.Target(), bound, found)
	}
	args := call.Args()
	if len(args) == 2 && isIndex(call.FunctionName()) && args[1].Kind() == ast.LiteralKind {
		if field, ok := args[1].AsLiteral().(types.String); ok {
			walkField(args[0], string(field), bound, found)
			return
		}
	}
	walkAll(args, bound, found)
}

func walkLoop(loop ast.ComprehensionExpr, bound []string, found map[read]bool) {
	walk(loop.IterRange(), bound, found)
	walk(loop.AccuInit(), bound, found)
	withAccu := append(slices.Clone(bound), loop.AccuVar())
	walk(loop.Result(), withAccu, found)
	withAll := append(withAccu, loop.IterVar(), loop.IterVar2())
	walk(loop.LoopCondition(), withAll, found)
	walk(loop.LoopStep(), withAll, found)
}

func record(ident ast.Expr, field string, bound []string, found map[read]bool) {
	name := ident.AsIdent()
	if slices.Contains(bound, name) {
		return
	}
	// A leading dot is how an expression names a variable that a loop hides.
	found[read{strings.TrimPrefix(name, "."), field}] = true
}

// isIndex tells whether the function selects a member of its first argument.
func isIndex(function string) bool {
	switch function {
	case operators.Index, operators.OptIndex, operators.OptSelect:
		return true
	default:
		return false
	}
}
