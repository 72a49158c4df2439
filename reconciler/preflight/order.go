package preflight

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/inventory"
)

// waveStride leaves room after the wave of each kind for objects that have to come after others of their stage.
const waveStride = 1 << 16

// manifestError says what is wrong with a rendered object whatever the API server thinks of it.
type manifestError struct{ text string }

// Error says what to do.
func (e *manifestError) Error() string { return e.text }

func manifestErrorf(format string, args ...any) error {
	return &manifestError{text: fmt.Sprintf(format, args...)}
}

// order gives every object its wave: after the kinds that come before its own, and after what its annotation names. The
// problems are references that lead nowhere, to a later stage, or in a circle.
func order(stages []ClearedStage) []Problem {
	all := sorter{places: map[inventory.Key]int{}, objects: map[inventory.Key]*Object{}}
	for number, stage := range stages {
		for _, object := range stage.objects {
			all.places[object.key], all.objects[object.key] = number, object
		}
	}
	var problems []Problem
	for number, stage := range stages {
		problems = append(problems, all.resolve(number, stage)...)
	}
	for _, stage := range stages {
		for _, object := range stage.objects {
			if circle := rank(object, nil); circle != nil {
				problems = append(problems, stage.Problem(circle[0], circleError(circle)))
			}
		}
		slices.SortStableFunc(stage.objects, byWave)
	}
	return problems
}

func byWave(a, b *Object) int {
	if a.wave != b.wave {
		return a.wave - b.wave
	}
	return inventory.Compare(a.key, b.key)
}

// sorter knows all objects of a release.
type sorter struct {
	places  map[inventory.Key]int
	objects map[inventory.Key]*Object
}

// resolve finds what the objects of a stage name. What an earlier stage renders is there before this one begins.
func (s *sorter) resolve(number int, stage ClearedStage) []Problem {
	var problems []Problem
	for _, object := range stage.objects {
		keys, err := dependencies(object.Desired().GetAnnotations()[v1.AnnotationDependsOn])
		if err != nil {
			problems = append(problems, stage.Problem(object, err))
			continue
		}
		for _, key := range keys {
			place, rendered := s.places[key]
			switch {
			case !rendered:
				problems = append(problems, stage.Problem(object, manifestErrorf(
					"its annotation %s names %s, which no stage renders", v1.AnnotationDependsOn, key)))
			case place > number:
				problems = append(problems, stage.Problem(object, manifestErrorf(
					"its annotation %s names %s, which only a later stage renders", v1.AnnotationDependsOn, key)))
			case place == number:
				object.after = append(object.after, s.objects[key])
				s.objects[key].gate = true
			}
		}
	}
	return problems
}

// rank sets the wave of an object and of all that it comes after. path is how it was come to; if that is a circle, the
// circle is returned, and its objects are not looked at again.
func rank(object *Object, path []*Object) []*Object {
	if start := slices.Index(path, object); start >= 0 {
		return slices.Clone(path[start:])
	}
	if object.ranked {
		return nil
	}
	path = append(path, object)
	object.wave = WaveOf(object.key.GroupKind()) * waveStride
	var circle []*Object
	for _, before := range object.after {
		if circle = rank(before, path); circle != nil {
			break
		}
		object.wave = max(object.wave, before.wave+1)
	}
	object.ranked = true
	return circle
}

func circleError(circle []*Object) error {
	names := make([]string, 0, len(circle)+1)
	for _, member := range append(circle, circle[0]) {
		names = append(names, member.key.String())
	}
	return manifestErrorf("its annotation %s leads in a circle: %s", v1.AnnotationDependsOn, strings.Join(names, " -> "))
}

// dependencies are the objects that a value of the annotation names.
func dependencies(value string) ([]inventory.Key, error) {
	var keys []inventory.Key
	for reference := range strings.SplitSeq(value, ",") {
		reference = strings.TrimSpace(reference)
		fields := strings.Split(reference, "/")
		switch {
		case value == "":
			return nil, nil
		case len(fields) == 3 && fields[1] != "" && fields[2] != "":
			keys = append(keys, inventory.Key{Group: fields[0], Kind: fields[1], Name: fields[2]})
		case len(fields) == 5 && fields[1] == "namespaces" && !slices.Contains(fields[2:], ""):
			keys = append(keys, inventory.Key{Group: fields[0], Namespace: fields[2], Kind: fields[3], Name: fields[4]})
		default:
			return nil, manifestErrorf("its annotation %s has %q: it must be group/namespaces/namespace/kind/name, "+
				"or group/kind/name for what is in no namespace", v1.AnnotationDependsOn, reference)
		}
	}
	return keys, nil
}
