package celenv

import (
	"fmt"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"k8s.io/apiserver/pkg/cel/mutation"
)

// pointer takes the escapes out of a part of a JSON Pointer.
var pointer = strings.NewReplacer("~1", "/", "~0", "~")

// UnknownFields are those that x constructs, or names in the literal path of a JSON Patch, although has says that the object
// does not have them: the types that mutations construct take any field.
func (x *Expression) UnknownFields(has func(path []string) (bool, error)) (Issues, error) {
	var issues Issues
	var failed error
	refuse := func(path []string, id int64, back int) {
		known, err := has(path)
		if err != nil {
			failed = err
		}
		if err == nil && !known {
			at := x.tree.SourceInfo().GetStartLocation(id)
			issues = append(issues, Issue{
				Message: fmt.Sprintf("undefined field '%s'", strings.Join(path, ".")),
				Line:    at.Line(), Column: at.Column() + 1 - back,
			})
		}
	}
	ast.PreOrderVisit(x.tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.StructKind {
			return
		}
		parts := strings.Split(e.AsStruct().TypeName(), ".")
		for _, entry := range e.AsStruct().Fields() {
			field := entry.AsStructField()
			switch {
			case parts[0] == mutation.ObjectTypeName:
				// What is known of a field is where its colon is.
				refuse(append(parts[1:len(parts):len(parts)], field.Name()), entry.ID(), len(field.Name()))
			case parts[0] == mutation.JSONPatchTypeName && field.Name() == "path" && field.Value().Kind() == ast.LiteralKind:
				if text, ok := field.Value().AsLiteral().(types.String); ok && text != "" {
					refuse(pathOf(string(text)), field.Value().ID(), 0)
				}
			}
		}
	}))
	return issues, failed
}

// pathOf are the names of a JSON Pointer.
func pathOf(text string) []string {
	parts := strings.Split(strings.TrimPrefix(text, "/"), "/")
	for i := range parts {
		parts[i] = pointer.Replace(parts[i])
	}
	return parts
}
