package policies

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/stageset/stageset/policies/internal/schema"
)

// goValues is what a schema error says about a value in the words of Go.
var goValues = regexp.MustCompile(`, got &.*`)

// fill is object with the fields of proposed that object does not set, and the paths of those fields. It is the merge of
// server-side apply with the roles exchanged: what object sets wins, so that its author always does. An optional field with
// an empty string counts as unset, as everywhere in Kubernetes; a label with an empty value does not.
func fill(object, proposed *unstructured.Unstructured) (*unstructured.Unstructured, []string, error) {
	converter, err := schema.Converter()
	if err != nil {
		return nil, nil, err
	}
	offered, err := converter.ObjectToTyped(proposed)
	if err != nil {
		return nil, nil, fmt.Errorf("sets what a StageSet cannot have: %s", goValues.ReplaceAllString(err.Error(), ""))
	}
	current, err := converter.ObjectToTyped(object, typed.AllowDuplicates)
	if err != nil {
		// Defaults come before the API server looks at the schema, which says better what is wrong.
		return object, nil, nil
	}
	current, err = withoutEmpty(current, offered)
	if err != nil {
		return nil, nil, err
	}
	merged, err := offered.Merge(current)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot be merged: %w", err)
	}
	added, err := additions(current, merged)
	if err != nil || len(added) == 0 {
		return object, nil, err
	}
	result, err := fromTyped(converter, merged)
	return result, added, err
}

// override is object after proposed: what it sets wins, and, if proposed is the whole object, what it lacks is removed. The
// paths are those of the fields that changed.
func override(object, proposed *unstructured.Unstructured, whole bool) (*unstructured.Unstructured, []string, error) {
	converter, err := schema.Converter()
	if err != nil {
		return nil, nil, err
	}
	offered, err := converter.ObjectToTyped(proposed)
	if err != nil {
		return nil, nil, fmt.Errorf("sets what a StageSet cannot have: %s", goValues.ReplaceAllString(err.Error(), ""))
	}
	current, err := converter.ObjectToTyped(object, typed.AllowDuplicates)
	if err != nil {
		// As for fill.
		return object, nil, nil
	}
	merged := offered
	if !whole {
		if merged, err = current.Merge(offered); err != nil {
			return nil, nil, fmt.Errorf("cannot be merged: %w", err)
		}
	}
	changed, err := changes(current, merged)
	if err != nil || changed == nil {
		return object, nil, err
	}
	result, err := fromTyped(converter, merged)
	return result, changed, err
}

// changes are the paths of the fields that differ between current and merged, if a mutation may change all of them; nil if
// there are none. What is removed is not a path of merged, and therefore nobody's.
func changes(current, merged *typed.TypedValue) ([]string, error) {
	different, err := current.Compare(merged)
	if err != nil {
		return nil, fmt.Errorf("cannot be compared: %w", err)
	}
	if different.IsSame() {
		return nil, nil
	}
	all := different.Added.Union(different.Modified)
	all.Union(different.Removed).Iterate(func(path fieldpath.Path) {
		if err == nil && !changeable(path) {
			err = fmt.Errorf("sets %s: only spec, labels and annotations can be changed", render(path))
		}
	})
	changed := []string{}
	all.Leaves().Iterate(func(path fieldpath.Path) {
		changed = append(changed, render(upToNewItem(path, current)))
	})
	slices.Sort(changed)
	return slices.Compact(changed), err
}

// changeable tells whether path leads to what is for its author to write, and not for the API server or the reconciler.
func changeable(path fieldpath.Path) bool {
	return begins(path, "spec") || begins(path, "metadata", "labels") || begins(path, "metadata", "annotations")
}

// withoutEmpty is current without the empty strings that offered has something for.
func withoutEmpty(current, offered *typed.TypedValue) (*typed.TypedValue, error) {
	different, err := current.Compare(offered)
	if err != nil {
		return nil, fmt.Errorf("cannot be compared: %w", err)
	}
	empty := &fieldpath.Set{}
	different.Modified.Iterate(func(path fieldpath.Path) {
		found := lookup(current.AsValue(), path)
		if found != nil && found.IsString() && found.AsString() == "" && declared(current, path) {
			empty.Insert(path.Copy())
		}
	})
	if empty.Empty() {
		return current, nil
	}
	return current.RemoveItems(empty), nil
}

// declared tells whether path leads to a field that the schema names, and not to an entry of a map.
func declared(v *typed.TypedValue, path fieldpath.Path) bool {
	named, at := false, v.TypeRef()
	for _, element := range path {
		atom, ok := v.Schema().Resolve(at)
		switch {
		case ok && atom.Map != nil && element.FieldName != nil:
			var field smdschema.StructField
			field, named = atom.Map.FindField(*element.FieldName)
			if at = field.Type; !named {
				at = atom.Map.ElementType
			}
		case ok && atom.List != nil:
			at = atom.List.ElementType
		default:
			return false
		}
	}
	return named
}

// additions are the paths of the fields that merged has and current has not, if a mutation may fill in all of them.
func additions(current, merged *typed.TypedValue) ([]string, error) {
	different, err := current.Compare(merged)
	if err != nil {
		return nil, fmt.Errorf("cannot be compared: %w", err)
	}
	var added []string
	different.Added.Iterate(func(path fieldpath.Path) {
		if err == nil {
			err = fillable(path, current)
		}
	})
	different.Added.Leaves().Iterate(func(path fieldpath.Path) {
		added = append(added, render(upToNewItem(path, current)))
	})
	slices.Sort(added)
	return slices.Compact(added), err
}

// upToNewItem is path, cut after the first item of a list that current does not have: an item is added as a whole.
func upToNewItem(path fieldpath.Path, current *typed.TypedValue) fieldpath.Path {
	for i, element := range path {
		if element.FieldName == nil && lookup(current.AsValue(), path[:i+1]) == nil {
			return path[:i+1]
		}
	}
	return path
}

// fillable refuses what is not for mutations to fill in: what the API server or the reconciler writes, and more items of a
// list that has some. The place of a new stage would be a guess.
func fillable(path fieldpath.Path, current *typed.TypedValue) error {
	if !changeable(path) {
		return fmt.Errorf("sets %s: only spec, labels and annotations can be filled in", render(path))
	}
	last := len(path) - 1
	if path[last].FieldName != nil {
		return nil
	}
	if list := lookup(current.AsValue(), path[:last]); list != nil && list.IsList() && list.AsList().Length() > 0 {
		return fmt.Errorf("adds %s: items are not added to a list that has some", render(path))
	}
	return nil
}

// begins tells whether path starts with the fields names.
func begins(path fieldpath.Path, names ...string) bool {
	for i, name := range names {
		if i >= len(path) || path[i].FieldName == nil || *path[i].FieldName != name {
			return false
		}
	}
	return true
}

// lookup is the value at path within v; nil if there is none.
func lookup(v value.Value, path fieldpath.Path) value.Value {
	for _, element := range path {
		switch {
		case v == nil:
			return nil
		case element.FieldName != nil:
			if !v.IsMap() {
				return nil
			}
			next, ok := v.AsMap().Get(*element.FieldName)
			if !ok {
				return nil
			}
			v = next
		default:
			i := indexOf(v, element)
			if i < 0 {
				return nil
			}
			v = v.AsList().At(i)
		}
	}
	return v
}

// indexOf is where the item that element tells is in the list v; negative if there is none.
func indexOf(v value.Value, element fieldpath.PathElement) int {
	if !v.IsList() || element.Key == nil {
		return -1
	}
	for i := range v.AsList().Length() {
		candidate := v.AsList().At(i)
		if candidate.IsMap() && !slices.ContainsFunc(*element.Key, func(field value.Field) bool {
			got, ok := candidate.AsMap().Get(field.Name)
			return !ok || !value.Equals(got, field.Value)
		}) {
			return i
		}
	}
	return -1
}

// render is path as people write it: spec.stages[app].path. The items of a list are told by their keys that are not empty.
func render(path fieldpath.Path) string {
	var text strings.Builder
	for _, element := range path {
		switch {
		case element.FieldName != nil:
			if text.Len() > 0 {
				text.WriteByte('.')
			}
			text.WriteString(*element.FieldName)
		case element.Key != nil:
			keys := make([]string, 0, len(*element.Key))
			for _, field := range *element.Key {
				if key := fmt.Sprint(field.Value.Unstructured()); key != "" {
					keys = append(keys, key)
				}
			}
			fmt.Fprintf(&text, "[%s]", strings.Join(keys, "/"))
		case element.Value != nil:
			fmt.Fprintf(&text, "[%v]", (*element.Value).Unstructured())
		case element.Index != nil:
			fmt.Fprintf(&text, "[%d]", *element.Index)
		}
	}
	return text.String()
}

func fromTyped(converter managedfields.TypeConverter, v *typed.TypedValue) (*unstructured.Unstructured, error) {
	object, err := converter.TypedToObject(v)
	if err != nil {
		return nil, fmt.Errorf("the result is not an object: %w", err)
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("the result is not an object: %w", err)
	}
	// The result shares values with what was merged.
	return (&unstructured.Unstructured{Object: fields}).DeepCopy(), nil
}
