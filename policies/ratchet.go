package policies

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// grandfather marks the findings of an update which the old object had alike. If the update leaves the spec alone, they are
// alike if the same rule says the same; if the policy enforces changes only, it is enough that the same rule is violated. In
// both cases the field that it speaks of is unchanged. A policy that is new or tightened must not keep anybody from adding a
// label, or a controller from removing a finalizer. A rule that was not evaluated for reasons that are not the object's says
// nothing about either object.
func (p *policy) grandfather(findings, before []finding, q question) {
	alike, violated := map[Violation]bool{}, map[string]bool{}
	for _, f := range before {
		alike[f.Violation] = true
		violated[f.Rule] = violated[f.Rule] || !f.limited
	}
	for i := range findings {
		f := &findings[i]
		if f.limited || f.failed && q.Namespace == nil {
			continue
		}
		same := q.specUnchanged && alike[f.Violation] || p.changesOnly && violated[f.Rule]
		f.grandfathered = same && unchanged(f.Field, q.Object, q.OldObject)
	}
}

// unchanged tells whether field is equal in both objects. A path that cannot be followed, such as
// metadata.labels[*], is equal if what it can be followed to is.
func unchanged(field string, object, old *unstructured.Unstructured) bool {
	current, former := any(object.Object), any(old.Object)
	for _, name := range splitPath(field) {
		next, followed := current.(map[string]any)
		previous, alike := former.(map[string]any)
		if !followed || !alike {
			break
		}
		current, former = next[name], previous[name]
	}
	return equality.Semantic.DeepEqual(current, former)
}

// splitPath are the names of a path such as metadata.labels['app.kubernetes.io/name'], up to the first part that is not one.
func splitPath(path string) []string {
	var names []string
	for path = strings.TrimPrefix(path, "."); path != ""; path = strings.TrimPrefix(path, ".") {
		if quoted, ok := strings.CutPrefix(path, "["); ok {
			inside, rest, closed := strings.Cut(quoted, "]")
			name := strings.Trim(inside, `'"`)
			if !closed || name == inside {
				return names
			}
			names, path = append(names, name), rest
			continue
		}
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			end = len(path)
		}
		names, path = append(names, path[:end]), path[end:]
	}
	return names
}
