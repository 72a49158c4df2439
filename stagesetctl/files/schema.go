package files

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/stageset/stageset/policies/kinds"
)

// Unknown are the fields of d that a kind, which is called name, does not have. Nothing is said of its status.
func (d Document) Unknown(kind *kinds.Kind, name string) Problems {
	var problems Problems
	for _, path := range kind.Prune(runtime.DeepCopyJSON(d.Fields)) {
		if !ofStatus(path) {
			problems = append(problems, d.At(path, path+": a "+name+" has no such field"))
		}
	}
	return problems
}

// Invalid is everything for which the API server would not store object, which was made of d, as one of a kind. Nothing is said
// of its status.
func (d Document) Invalid(ctx context.Context, kind *kinds.Kind, object map[string]any) Problems {
	var problems Problems
	for _, err := range kind.Validate(ctx, object) {
		if !ofStatus(err.Field) {
			problems = append(problems, d.At(err.Field, err.Field+": "+detail(err)))
		}
	}
	return problems
}

// ofStatus says whether a path is of the status, which the API server takes from nobody who writes an object: in what was read from
// a cluster it may be that of another version.
func ofStatus(path string) bool {
	rest, found := strings.CutPrefix(path, "status")
	return found && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// detail says what is wrong on one line, and repeats no value that is long.
func detail(err *field.Error) string {
	const longest = 100
	if len(fmt.Sprint(err.BadValue)) > longest {
		return fmt.Sprintf("%s: %s", err.Type, strings.Join(strings.Fields(err.Detail), " "))
	}
	text := strings.Join(strings.Fields(err.ErrorBody()), " ")
	return strings.ReplaceAll(text, err.Field+" in body ", "")
}
