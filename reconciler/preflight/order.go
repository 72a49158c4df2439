package preflight

import (
	"fmt"
	"slices"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/waves"
)

// manifestError says what is wrong with a rendered object whatever the API server thinks of it.
type manifestError struct{ text string }

// Error says what to do.
func (e *manifestError) Error() string { return e.text }

func manifestErrorf(format string, args ...any) error {
	return &manifestError{text: fmt.Sprintf(format, args...)}
}

// order puts the objects of all stages into waves, and says what they ask for that cannot be done.
func order(stages []ClearedStage) []Problem {
	ordered := make([][]*waves.Object, 0, len(stages))
	origins := map[*waves.Object]*Object{}
	for _, stage := range stages {
		objects := make([]*waves.Object, 0, len(stage.objects))
		for _, object := range stage.objects {
			next := &waves.Object{Key: object.key, DependsOn: object.Desired().GetAnnotations()[v1.AnnotationDependsOn]}
			objects, origins[next] = append(objects, next), object
		}
		ordered = append(ordered, objects)
	}
	var problems []Problem
	for _, problem := range waves.Order(ordered) {
		problems = append(problems, stages[problem.Stage].Problem(origins[problem.Object], manifestErrorf("%s", problem.Text)))
	}
	for number, objects := range ordered {
		for _, object := range objects {
			origins[object].wave, origins[object].gate = object.Wave, object.Gate
		}
		slices.SortStableFunc(stages[number].objects, byWave)
	}
	return problems
}

func byWave(a, b *Object) int {
	if a.wave != b.wave {
		return a.wave - b.wave
	}
	return inventory.Compare(a.key, b.key)
}
