// Package waves says in which order the objects of a stage are applied: by kind, and by what they name themselves. It is
// pure: it knows what is rendered, and nothing of what is live.
package waves

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/inventory"
)

// Object is an object of a stage on its way into a wave.
type Object struct {
	Key inventory.Key
	// DependsOn is the value of v1.AnnotationDependsOn.
	DependsOn string

	// Wave is the object's place in its stage, from the first wave to the last; Order sets it.
	Wave int
	// Gate is true when no later wave may begin before the object is healthy; Order sets it.
	Gate bool

	after  []*Object
	ranked bool
}

// After are the objects of the same stage that the object names; Order finds them.
func (o *Object) After() []*Object { return o.after }

// Problem is a reference of an object that cannot be honoured.
type Problem struct {
	// Stage is the index of the stage, and Object the object with the annotation.
	Stage  int
	Object *Object
	// Text says what is wrong, with the name of the annotation.
	Text string
}

// stride leaves room after the wave of each kind for objects that have to come after others of their stage.
const stride = 1 << 16

// Order gives every object of a release, by stage, its wave: after the kinds that come before its own, and after what its
// annotation names. Definitions and what is named are gates. The problems are references that lead nowhere, to a later
// stage, or in a circle; they are the same for the same objects in the same order.
func Order(stages [][]*Object) []Problem {
	all := release{stages: map[inventory.Key]int{}, objects: map[inventory.Key]*Object{}}
	for number, objects := range stages {
		for _, object := range objects {
			all.stages[object.Key], all.objects[object.Key] = number, object
			object.Gate = object.Key.GroupKind() == (schema.GroupKind{Group: crdGroup, Kind: "CustomResourceDefinition"})
		}
	}
	var problems []Problem
	for number, objects := range stages {
		for _, object := range objects {
			for _, text := range all.resolve(object, number) {
				problems = append(problems, Problem{Stage: number, Object: object, Text: text})
			}
		}
	}
	for number, objects := range stages {
		for _, object := range objects {
			if circle := rank(object, nil); circle != nil {
				problems = append(problems, Problem{Stage: number, Object: circle[0], Text: inCircle(circle)})
			}
		}
	}
	return problems
}

// release knows all objects, and the stages that render them.
type release struct {
	stages  map[inventory.Key]int
	objects map[inventory.Key]*Object
}

// resolve finds what an object of a stage names. What an earlier stage renders is there before this one begins.
func (r release) resolve(object *Object, number int) (problems []string) {
	keys, problem := parse(object.DependsOn)
	if problem != "" {
		return []string{problem}
	}
	for _, key := range keys {
		stage, rendered := r.stages[key]
		switch {
		case !rendered:
			problems = append(problems, fmt.Sprintf("its annotation %s names %s, which no stage renders",
				v1.AnnotationDependsOn, key))
		case stage > number:
			problems = append(problems, fmt.Sprintf("its annotation %s names %s, which only a later stage renders",
				v1.AnnotationDependsOn, key))
		case stage == number:
			object.after = append(object.after, r.objects[key])
			r.objects[key].Gate = true
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
	object.Wave = OfKind(object.Key.GroupKind()) * stride
	var circle []*Object
	for _, before := range object.after {
		if circle = rank(before, path); circle != nil {
			break
		}
		object.Wave = max(object.Wave, before.Wave+1)
	}
	object.ranked = true
	return circle
}

func inCircle(circle []*Object) string {
	names := make([]string, 0, len(circle)+1)
	for _, member := range append(circle, circle[0]) {
		names = append(names, member.Key.String())
	}
	return fmt.Sprintf("its annotation %s leads in a circle: %s", v1.AnnotationDependsOn, strings.Join(names, " -> "))
}

// parse is what a value of the annotation names, or what is wrong with it.
func parse(value string) (keys []inventory.Key, problem string) {
	if value == "" {
		return nil, ""
	}
	for reference := range strings.SplitSeq(value, ",") {
		reference = strings.TrimSpace(reference)
		fields := strings.Split(reference, "/")
		switch {
		case len(fields) == 3 && fields[1] != "" && fields[2] != "":
			keys = append(keys, inventory.Key{Group: fields[0], Kind: fields[1], Name: fields[2]})
		case len(fields) == 5 && fields[1] == "namespaces" && !slices.Contains(fields[2:], ""):
			keys = append(keys, inventory.Key{Group: fields[0], Namespace: fields[2], Kind: fields[3], Name: fields[4]})
		default:
			return nil, fmt.Sprintf("its annotation %s has %q: it must be group/namespaces/namespace/kind/name, "+
				"or group/kind/name for what is in no namespace", v1.AnnotationDependsOn, reference)
		}
	}
	return keys, ""
}
