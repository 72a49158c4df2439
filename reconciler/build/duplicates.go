package build

import (
	"errors"
	"fmt"
	"strings"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

// maxDuplicates is how many objects a message about duplicates names.
const maxDuplicates = 5

// StageManifests are the manifests of a named stage.
type StageManifests struct {
	Stage string
	Manifests
}

// identity is what the API server knows an object by: the version is only a way to look at it.
type identity struct{ group, kind, namespace, name string }

// claim is a stage that renders an object, and where.
type claim struct{ stage, origin string }

func (c claim) String() string { return fmt.Sprintf("stage %q (%s)", c.stage, c.origin) }

// Duplicates looks for objects that the stages of a release render more than once: same group, kind, namespace and name,
// whatever the version. The result is nil or a Stalled failure.Error with reason DuplicateObject that names the objects
// and both stages of each. The manifests must have been placed.
func Duplicates(stages []StageManifests) error {
	first := map[identity]claim{}
	var found []string
	for _, stage := range stages {
		for _, object := range stage.objects {
			gvk := object.GroupVersionKind()
			id := identity{gvk.Group, gvk.Kind, object.GetNamespace(), object.GetName()}
			here := claim{stage.Stage, object.Origin}
			if before, twice := first[id]; twice {
				found = append(found, fmt.Sprintf("%s is rendered by %s and by %s", object, before, here))
				continue
			}
			first[id] = here
		}
	}
	if len(found) == 0 {
		return nil
	}
	text := strings.Join(failure.AndMore(found[:min(len(found), maxDuplicates)], len(found)-maxDuplicates), "; ")
	return &failure.Error{Reason: v1.ReasonDuplicateObject, Kind: failure.Stalled, Err: errors.New(text)}
}
