package celenv

import (
	"maps"
	"math"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// maxItems and maxLength are what the lists and maps, and the strings, of a small object have at most. The lists of a StageSet
// have no more items.
const (
	maxItems  = 64
	maxLength = 1 << 10
)

// unknown is a cost or size that may be anything.
var unknown = math.Inf(1)

// bound is what is known of tree if the objects are small: what evaluating it costs at most, in the cost units that would be
// counted, is infinite if that cannot be told. (The estimates of cel-go are too low where types are not known.) The variables
// are what is known of those of the policy; what evaluating them costs is theirs.
func bound(tree *ast.AST, variables map[string]part) part {
	b := bounder{tree: tree, variables: variables}
	whole := part{size: maxLength, item: unknown, from: wholeObject}
	return b.visit(tree.Expr(), map[string]part{varObject: whole, varOldObject: whole, varParams: whole})
}

type bounder struct {
	tree      *ast.AST
	variables map[string]part
}

// part is what is known of a part of an expression: what it costs at most, what size its value and the items of that have at
// most, in the size() of CEL, and which part of an object it is.
type part struct {
	cost, size, item float64
	from             origin
}

// count is how many items there are at most.
func (p part) count() float64 {
	if p.from != elsewhere {
		return min(p.size, maxItems)
	}
	return p.size
}

// origin is where the value of a part of an expression comes from.
type origin int

const (
	elsewhere origin = iota
	// wholeObject is an object, ofMetadata its metadata, and ofObject any other part, which small looks at.
	wholeObject
	ofMetadata
	ofObject
)

// countedMetadata are the parts of metadata that small looks at. Tools write long annotations and managed fields, which rules
// hardly ever read.
var countedMetadata = map[string]bool{"name": true, "generateName": true, "namespace": true, "labels": true}

// field is the field of p called name, for one unit more.
func (p part) field(name string) part {
	of := part{cost: p.cost + 1, size: unknown, item: unknown}
	switch {
	case p.from == wholeObject && name == "metadata":
		of.size, of.from = maxLength, ofMetadata
	case p.from == wholeObject, p.from == ofObject, p.from == ofMetadata && countedMetadata[name]:
		of.size, of.item, of.from = maxLength, maxLength, ofObject
	}
	return of
}

// any is any item, key or value of p, for one unit.
func (p part) any() part {
	of := part{cost: 1, size: p.item, item: unknown}
	if p.from == ofObject {
		of.item, of.from = maxLength, ofObject
	}
	return of
}

// visit is what is known of e. known are the variables.
func (b bounder) visit(e ast.Expr, known map[string]part) part {
	found := part{cost: 1, size: unknown, item: unknown}
	switch e.Kind() {
	case ast.LiteralKind:
		found.size, found.item = literalSize(e), 0
	case ast.IdentKind:
		if variable, ok := known[e.AsIdent()]; ok { // which no name has that begins with a dot
			found = variable
			found.cost = 1
		}
	case ast.SelectKind:
		selection := e.AsSelect()
		found = b.visit(selection.Operand(), known).field(selection.FieldName())
		if variable, ok := b.variable(selection, known); ok {
			found = variable
		}
		if selection.IsTestOnly() {
			found.from = elsewhere
		}
	case ast.CallKind:
		found = b.call(e, known)
	case ast.ListKind:
		found = b.list(e.AsList(), known)
	case ast.MapKind:
		found = b.mapping(e.AsMap(), known)
	case ast.ComprehensionKind:
		found = b.loop(e.AsComprehension(), known)
	default:
		found.cost = unknown
	}
	if scalar(b.tree.GetType(e.ID())) {
		found.size = 1
	}
	return found
}

// variable is the variable of the policy that is selected, for two units.
func (b bounder) variable(selection ast.SelectExpr, known map[string]part) (part, bool) {
	if selection.Operand().Kind() != ast.IdentKind || selection.Operand().AsIdent() != varVariables {
		return part{}, false
	}
	_, hidden := known[varVariables]
	found, ok := b.variables[selection.FieldName()]
	found.cost = 2
	return found, ok && !hidden
}

func (b bounder) list(list ast.ListExpr, known map[string]part) part {
	found := part{cost: common.ListCreateBaseCost, size: float64(list.Size())}
	for _, element := range list.Elements() {
		item := b.visit(element, known)
		found.cost += item.cost
		found.item = max(found.item, item.size)
	}
	return found
}

func (b bounder) mapping(entries ast.MapExpr, known map[string]part) part {
	found := part{cost: common.MapCreateBaseCost, size: float64(entries.Size())}
	for _, entry := range entries.Entries() {
		key, value := b.visit(entry.AsMapEntry().Key(), known), b.visit(entry.AsMapEntry().Value(), known)
		found.cost += key.cost + value.cost
		found.item = max(found.item, key.size, value.size)
	}
	return found
}

func (b bounder) loop(loop ast.ComprehensionExpr, known map[string]part) part {
	over, start := b.visit(loop.IterRange(), known), b.visit(loop.AccuInit(), known)
	within := maps.Clone(known)
	within[loop.AccuVar()] = part{size: unknown, item: start.item}
	result := b.visit(loop.Result(), within)
	for _, name := range []string{loop.IterVar(), loop.IterVar2()} {
		within[name] = over.any()
	}
	condition, step := b.visit(loop.LoopCondition(), within), b.visit(loop.LoopStep(), within)
	return part{
		cost: over.cost + start.cost + over.count()*(condition.cost+step.cost) + result.cost,
		size: over.count(), // because a macro that makes a list adds at most one item in each step
		item: step.item,
	}
}

// call is what is known of the call e: of few functions, the operators and those that look at strings, lists and optional
// values. The costs of others may depend on anything.
func (b bounder) call(e ast.Expr, known map[string]part) part {
	call := e.AsCall()
	var args []part
	if call.IsMemberFunction() {
		args = append(args, b.visit(call.Target(), known))
	}
	for _, arg := range call.Args() {
		args = append(args, b.visit(arg, known))
	}
	found := part{cost: 1, size: unknown, item: unknown}
	switch name := call.FunctionName(); {
	case isIndex(name):
		found = args[0].any()
		if field := call.Args()[1]; field.Kind() == ast.LiteralKind {
			if text, ok := field.AsLiteral().(types.String); ok {
				found = args[0].field(string(text))
			}
		}
		found.cost = 1
	case name == operators.Add && isList(b.tree.GetType(e.ID())):
		found.size, found.item = args[0].count()+args[1].count(), max(args[0].item, args[1].item)
	case len(args) == 3 && name == operators.Conditional:
		found = either(args[1], args[2])
	case len(args) == 2 && (name == "orValue" || name == "or"):
		found = either(args[0], args[1])
	default:
		found.cost, found.size, found.item = functionBound(name, args)
	}
	for _, arg := range args {
		found.cost += arg.cost
	}
	return found
}

// either is a or b, for one unit.
func either(a, b part) part {
	found := part{cost: 1, size: max(a.size, b.size), item: max(a.item, b.item)}
	if a.from == b.from || b.size == 0 {
		found.from = a.from
	}
	return found
}

// functionBound is what a call of the function costs at most, without its arguments, and how large the result is.
func functionBound(name string, args []part) (cost, size, item float64) {
	traversed := func(size float64) float64 { return 1 + size*common.StringTraversalCostFactor }
	switch {
	case simple[name]:
		return 1, unknown, unknown
	case len(args) == 1 && (name == "lowerAscii" || name == "upperAscii" || name == "trim"), name == "substring":
		return traversed(args[0].size), args[0].size, unknown
	case len(args) == 1 && name == "string":
		return traversed(args[0].size), max(args[0].size, 64), unknown // numbers are longer than their size
	case len(args) == 2 && name == "split":
		return traversed(2 * args[0].size), args[0].size + 1, args[0].size
	case len(args) == 3 && name == "replace":
		return traversed(2 * args[0].size), unknown, unknown
	case len(args) == 2 && compares[name]:
		return traversed(min(args[0].size, args[1].size)), 1, unknown
	case len(args) == 2 && name == operators.In:
		return 1 + args[1].count(), 1, unknown
	case len(args) == 2 && (name == "startsWith" || name == "endsWith"):
		return traversed(args[1].size), 1, unknown
	case len(args) == 2 && name == "contains":
		return traversed(args[0].size) * traversed(args[1].size), 1, unknown
	case len(args) == 2 && name == "matches":
		return traversed(1+args[0].size) * (1 + args[1].size*common.RegexStringLengthCostFactor), 1, unknown
	case len(args) == 2 && name == operators.Add:
		return traversed(args[0].size + args[1].size), args[0].size + args[1].size, unknown
	default:
		return unknown, unknown, unknown
	}
}

// simple are functions that cost one unit, and compares those that compare their arguments.
var (
	simple = map[string]bool{
		operators.LogicalAnd: true, operators.LogicalOr: true, operators.LogicalNot: true, operators.NotStrictlyFalse: true,
		operators.Negate: true, operators.Subtract: true, "hasValue": true, "size": true, "duration": true, "int": true,
	}
	compares = map[string]bool{
		operators.Equals: true, operators.NotEquals: true, operators.Less: true, operators.LessEquals: true,
		operators.Greater: true, operators.GreaterEquals: true,
	}
)

// literalSize is the size of the literal e.
func literalSize(e ast.Expr) float64 {
	switch value := e.AsLiteral().(type) {
	case types.String:
		return float64(len(value))
	case types.Bytes:
		return float64(len(value))
	default:
		return 1
	}
}

// scalar tells whether values of t have the size of one.
func scalar(t *cel.Type) bool {
	switch t.Kind() {
	case types.BoolKind, types.IntKind, types.UintKind, types.DoubleKind, types.NullTypeKind, types.DurationKind:
		return true
	default:
		return false
	}
}

func isList(t *cel.Type) bool { return t.Kind() == types.ListKind }
