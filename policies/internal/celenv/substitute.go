package celenv

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"
	"k8s.io/apiserver/pkg/cel/mutation"
)

// Substitute is text, which x was compiled from, with the text that values has for a variable in place of each mention of
// it. A loop that gives the name of such a variable to its items is an error.
func (x *Expression) Substitute(text string, values map[string]string) (string, error) {
	source := x.tree.SourceInfo()
	var hidden error
	at := map[int]string{}
	ast.PreOrderVisit(x.tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.IdentKind:
			name := strings.TrimPrefix(e.AsIdent(), ".")
			if _, ok := values[name]; ok {
				if position, known := source.GetOffsetRange(e.ID()); known {
					at[int(position.Start)] = name
				}
			}
		case ast.ComprehensionKind:
			loop := e.AsComprehension()
			for _, name := range []string{loop.IterVar(), loop.IterVar2()} {
				if _, ok := values[name]; ok {
					hidden = fmt.Errorf("calls the items of a loop %s, as a variable is called: call them something else", name)
				}
			}
		}
	}))
	if hidden != nil {
		return "", hidden
	}
	return splice(text, at, values)
}

// splice is text, in which the mentions of variables begin at the characters of at, with their values.
func splice(text string, at map[int]string, values map[string]string) (string, error) {
	runes := []rune(text)
	var result strings.Builder
	copied := 0
	for _, start := range sortedKeys(at) {
		mention := []rune(at[start])
		end := start + len(mention)
		if start < copied || end > len(runes) || string(runes[start:end]) != string(mention) {
			return "", fmt.Errorf("mentions %s where it cannot be replaced", at[start])
		}
		// A leading dot, which says that a variable is meant, is not part of the mention.
		before := strings.TrimSuffix(string(runes[copied:start]), ".")
		result.WriteString(before + "(" + values[at[start]] + ")")
		copied = end
	}
	result.WriteString(string(runes[copied:]))
	return result.String(), nil
}

func sortedKeys(m map[int]string) []int {
	keys := make([]int, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// Reads tells whether x mentions the variable called name.
func (x *Expression) Reads(name string) bool {
	for r := range reads(x.tree) {
		if r.variable == name {
			return true
		}
	}
	return false
}

// OnlyUnset is the text of x, which was compiled for Object, changed so that it has only those fields that object does not
// set: where the fields of an apply configuration replace what is set, that is what keeps them from doing so. An optional
// field with an empty string counts as unset. x has to be one literal, whose fields are no lists and no maps: how those are
// merged cannot be said there.
func (x *Expression) OnlyUnset() (string, error) {
	return x.onlyUnset(x.tree.Expr(), "object")
}

func (x *Expression) onlyUnset(e ast.Expr, path string) (string, error) {
	if !isConstructed(e) {
		return "", fmt.Errorf("is not just an %s{…} with its fields", mutation.ObjectTypeName)
	}
	var fields []string
	for _, entry := range e.AsStruct().Fields() {
		field := entry.AsStructField()
		inner := path + ".?" + field.Name()
		switch value := field.Value(); {
		case isConstructed(value) && field.IsOptional():
			return "", fmt.Errorf("sets %s optionally as a whole: make its fields optional", field.Name())
		case isConstructed(value):
			text, err := x.onlyUnset(value, inner)
			if err != nil {
				return "", err
			}
			fields = append(fields, field.Name()+": "+text)
		case !x.isScalar(value):
			return "", fmt.Errorf("sets %s to a list or a map, which would replace what is set", field.Name())
		default:
			text, err := parser.Unparse(value, x.tree.SourceInfo())
			if err != nil {
				return "", err
			}
			if !field.IsOptional() {
				text = "optional.of(" + text + ")"
			}
			fields = append(fields, fmt.Sprintf("?%s: %s.orValue('') != '' ? optional.none() : (%s)", field.Name(), inner, text))
		}
	}
	return e.AsStruct().TypeName() + "{" + strings.Join(fields, ", ") + "}", nil
}

func isConstructed(e ast.Expr) bool {
	if e.Kind() != ast.StructKind {
		return false
	}
	name := e.AsStruct().TypeName()
	return name == mutation.ObjectTypeName || strings.HasPrefix(name, mutation.ObjectTypeName+".")
}

// isScalar tells whether e is a bool, a number, a string, one of them optionally, or something that is only known later.
func (x *Expression) isScalar(e ast.Expr) bool {
	t := x.tree.GetType(e.ID())
	if t.Kind() == types.OpaqueKind && t.TypeName() == "optional_type" && len(t.Parameters()) == 1 {
		t = t.Parameters()[0]
	}
	switch t.Kind() {
	case types.BoolKind, types.IntKind, types.UintKind, types.DoubleKind, types.StringKind, types.DynKind:
		return true
	default:
		return t.IsExactType(cel.NullType)
	}
}
