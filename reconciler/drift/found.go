package drift

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/inventory"
)

// Found is what happened to an object since it was applied. It names fields and who set them, and holds none of their values.
type Found struct {
	Key inventory.Key
	// State is what the object is: Missing, Replaced, Disowned or Suspect.
	State State
	// Paths are the fields of a Suspect that an apply would change, sorted.
	Paths []string
	// Managers are the field managers that set them, sorted; none if the fields were removed.
	Managers []string
}

// maxPaths is how many fields a text names before it counts.
const maxPaths = 10

// String says it on one line: "ConfigMap team-a/web: data.color (set by kubectl-edit)".
func (f Found) String() string {
	switch f.State {
	case Missing:
		return f.Key.String() + " was deleted"
	case Replaced:
		return f.Key.String() + " was replaced by another object of its name"
	case Disowned:
		return f.Key.String() + ": the StageSet's entry in metadata.managedFields was removed"
	}
	if len(f.Paths) == 0 {
		return f.Key.String() + " was changed"
	}
	fields := f.fields()
	if len(f.Managers) > 0 {
		fields += " (set by " + strings.Join(f.Managers, ", ") + ")"
	}
	return f.Key.String() + ": " + fields
}

// Loop says it of what somebody does again and again: "ConfigMap team-a/web: field data.color is also set by manager hotfix".
func (f Found) Loop() string {
	what := "field " + f.fields() + " is "
	if len(f.Paths) > 1 {
		what = "fields " + f.fields() + " are "
	}
	switch len(f.Managers) {
	case 0:
		what += "changed by others again and again"
	case 1:
		what += "also set by manager " + f.Managers[0]
	default:
		what += "also set by managers " + strings.Join(f.Managers, ", ")
	}
	return f.Key.String() + ": " + what
}

func (f Found) fields() string {
	return strings.Join(failure.AndMore(f.Paths[:min(len(f.Paths), maxPaths)], len(f.Paths)-maxPaths), ", ")
}

// Explain names the fields in which an apply's answer differs from the live object, and who has set them. manager is the
// StageSet's own field manager, which is not named.
func Explain(live, answer *unstructured.Unstructured, manager string) Found {
	managed, managers := map[string]bool{}, map[string]bool{}
	for _, entry := range live.GetManagedFields() {
		if entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationApply {
			continue
		}
		for _, path := range entryPaths(entry, live, answer) {
			managed[path], managers[entry.Manager] = true, true
		}
	}
	found := Found{Key: inventory.KeyOf(live), State: Suspect, Managers: slices.Sorted(maps.Keys(managers))}
	for _, path := range differences("", stripped(live), stripped(answer)) {
		if !covered(managed, path) {
			managed[path] = true // nobody has it: it was removed, or written in our manager's name
		}
	}
	found.Paths = slices.Sorted(maps.Keys(managed))
	return found
}

// entryPaths are the fields of an entry of managedFields that differ. An entry that cannot be read names none.
func entryPaths(entry metav1.ManagedFieldsEntry, live, answer *unstructured.Unstructured) []string {
	var fields fieldpath.Set
	if entry.FieldsV1 == nil || fields.FromJSON(entry.FieldsV1.GetRawReader()) != nil {
		return nil
	}
	var paths []string
	fields.Leaves().Iterate(func(path fieldpath.Path) {
		is, exists := at(live.Object, path)
		becomes, stays := at(answer.Object, path)
		if exists != stays || !reflect.DeepEqual(is, becomes) {
			paths = append(paths, text(path))
		}
	})
	return paths
}

// text is a path as people write it: spec.template.spec.containers[name="app"].image. What tells the items of a set apart is
// their value, so the list is named.
func text(path fieldpath.Path) string {
	if last := len(path) - 1; path[last].Value != nil {
		path = path[:last]
	}
	return strings.TrimPrefix(path.String(), ".")
}

// at is the value at a path, and whether there is one.
func at(value any, path fieldpath.Path) (any, bool) {
	for _, element := range path {
		var found bool
		if element.FieldName != nil {
			fields, _ := value.(map[string]any)
			value, found = fields[*element.FieldName]
		} else {
			value, found = item(value, element)
		}
		if !found {
			return nil, false
		}
	}
	return value, true
}

// item is the item of a list that an element of a path means.
func item(value any, element fieldpath.PathElement) (any, bool) {
	list, _ := value.([]any)
	for index, candidate := range list {
		switch {
		case element.Index != nil && *element.Index == index,
			element.Value != nil && reflect.DeepEqual((*element.Value).Unstructured(), candidate),
			element.Key != nil && hasKey(candidate, element):
			return candidate, true
		}
	}
	return nil, false
}

func hasKey(candidate any, element fieldpath.PathElement) bool {
	fields, isMap := candidate.(map[string]any)
	for _, key := range *element.Key {
		if !isMap || !reflect.DeepEqual(fields[key.Name], key.Value.Unstructured()) {
			return false
		}
	}
	return true
}

// differences are the paths at which two values differ; a list is one value.
func differences(path string, is, becomes any) []string {
	before, wasMap := is.(map[string]any)
	after, staysMap := becomes.(map[string]any)
	if !wasMap || !staysMap {
		if reflect.DeepEqual(is, becomes) {
			return nil
		}
		return []string{path}
	}
	keys := maps.Clone(before)
	maps.Copy(keys, after)
	var paths []string
	for key := range keys {
		paths = append(paths, differences(strings.TrimPrefix(path+"."+key, "."), before[key], after[key])...)
	}
	return paths
}

// covered is true when one of the named paths leads to, or through, the path.
func covered(named map[string]bool, path string) bool {
	for other := range named {
		if within(other, path) || within(path, other) {
			return true
		}
	}
	return false
}

func within(path, parent string) bool {
	rest, below := strings.CutPrefix(path, parent)
	return below && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
