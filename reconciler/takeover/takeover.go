// Package takeover computes whose the fields of an object are once what others left on it is ours: managedFields in,
// managedFields out. It is pure: it never talks to a cluster, and never looks at the values of fields.
package takeover

import (
	"fmt"
	"path"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	v1 "github.com/stageset/stageset/api/v1"
)

// Managers are the field managers of earlier tools, as globs of package path.
type Managers []string

// ParseManagers checks globs.
func ParseManagers(globs []string) (Managers, error) {
	for _, glob := range globs {
		if _, err := path.Match(glob, ""); err != nil || glob == "" {
			return nil, fmt.Errorf("%q is no glob of a field manager", glob)
		}
	}
	return globs, nil
}

func (m Managers) match(manager string) bool {
	return slices.ContainsFunc(m, func(glob string) bool {
		matched, err := path.Match(glob, manager)
		return err == nil && matched
	})
}

// Heir is a field manager that takes over what others have left.
type Heir struct {
	// Manager is the heir's own field manager, which applies.
	Manager string
	// Earlier are the managers of earlier tools. As long as the heir has not applied the object, all that they own is taken.
	// Later, what they own by an update and the heir owns too: else it would stay when the heir does not want it any more.
	Earlier Managers
	// Gone says that a field manager which applies is nobody's any more: all that it owns is taken, always.
	Gone func(manager string) bool
}

// kept are annotations that an earlier tool has set on the live object, and that mean something there.
var kept = []string{"kubectl.kubernetes.io/restartedAt", v1.AnnotationPrune}

// Merge is managedFields once the heir has taken over; taken is false if there is nothing to take. Fields of another API
// version than the heir's, and of subresources, stay where they are.
func (h Heir) Merge(entries []metav1.ManagedFieldsEntry) (merged []metav1.ManagedFieldsEntry, taken bool, err error) {
	own, err := h.own(entries)
	if err != nil {
		return nil, false, err
	}
	all, version := own, ""
	if own != nil {
		version = entries[slices.IndexFunc(entries, h.isOwn)].APIVersion
	}
	var latest *metav1.Time
	for _, entry := range entries {
		if h.isOwn(entry) {
			continue
		}
		fields, err := decode(entry)
		if err != nil {
			return nil, false, err
		}
		take := h.take(entry, fields, own)
		if take.Empty() || version != "" && entry.APIVersion != version {
			merged = append(merged, entry)
			continue
		}
		all, version, latest = union(all, take), entry.APIVersion, entry.Time
		if rest := fields.Difference(take); !rest.Empty() {
			entry.FieldsV1, err = encode(rest)
			if err != nil {
				return nil, false, err
			}
			merged = append(merged, entry)
		}
		taken = true
	}
	if !taken {
		return entries, false, nil
	}
	ours := metav1.ManagedFieldsEntry{
		Manager: h.Manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: version, Time: latest,
		FieldsType: "FieldsV1",
	}
	ours.FieldsV1, err = encode(all)
	return append(merged, ours), true, err
}

// Possible is true when Merge may find something to take from an object with such entries, whatever the state it is in.
func (h Heir) Possible(entries []metav1.ManagedFieldsEntry) bool {
	return slices.ContainsFunc(entries, func(entry metav1.ManagedFieldsEntry) bool {
		return !h.isOwn(entry) && entry.Subresource == "" && (h.Earlier.match(entry.Manager) || h.isGone(entry))
	})
}

// own is what the heir owns; nil if it has not applied the object.
func (h Heir) own(entries []metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	at := slices.IndexFunc(entries, h.isOwn)
	if at < 0 {
		return nil, nil
	}
	return decode(entries[at])
}

func (h Heir) isOwn(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == h.Manager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == ""
}

func (h Heir) isGone(entry metav1.ManagedFieldsEntry) bool {
	return entry.Operation == metav1.ManagedFieldsOperationApply && h.Gone != nil && h.Gone(entry.Manager)
}

// take is what the heir takes of an entry.
func (h Heir) take(entry metav1.ManagedFieldsEntry, fields, own *fieldpath.Set) *fieldpath.Set {
	switch {
	case entry.Subresource != "":
		return fieldpath.NewSet()
	case h.isGone(entry):
		return fields
	case !h.Earlier.match(entry.Manager):
		return fieldpath.NewSet()
	case own == nil:
		return withoutKept(fields)
	case entry.Operation == metav1.ManagedFieldsOperationUpdate:
		return withoutKept(fields).Intersection(own)
	default:
		return fieldpath.NewSet() // it still applies
	}
}

// withoutKept leaves out the kept annotations, and the fields that they are in.
func withoutKept(fields *fieldpath.Set) *fieldpath.Set {
	keep := fieldpath.NewSet()
	fields.Iterate(func(field fieldpath.Path) {
		last := field[len(field)-1]
		if last.FieldName == nil || !slices.Contains(kept, *last.FieldName) {
			return
		}
		for length := range field {
			keep.Insert(slices.Clone(field[:length+1]))
		}
	})
	return fields.Difference(keep)
}

// Update is managedFields with all that is of an outdated API version moved to another one; changed is false if there is
// none. The paths stay as they are.
func Update(entries []metav1.ManagedFieldsEntry, outdated func(apiVersion string) bool, apiVersion string) (
	updated []metav1.ManagedFieldsEntry, changed bool, err error,
) {
	for _, entry := range entries {
		if outdated(entry.APIVersion) {
			entry.APIVersion, changed = apiVersion, true
		}
		at := slices.IndexFunc(updated, func(known metav1.ManagedFieldsEntry) bool { return same(known, entry) })
		if at < 0 {
			updated = append(updated, entry)
			continue
		}
		// Who owned fields in both versions has one entry now.
		before, err := decode(updated[at])
		if err != nil {
			return nil, false, err
		}
		fields, err := decode(entry)
		if err != nil {
			return nil, false, err
		}
		if updated[at].FieldsV1, err = encode(before.Union(fields)); err != nil {
			return nil, false, err
		}
	}
	return updated, changed, nil
}

// same is true for two entries that the API server takes for one.
func same(a, b metav1.ManagedFieldsEntry) bool {
	return a.Manager == b.Manager && a.Operation == b.Operation && a.APIVersion == b.APIVersion &&
		a.Subresource == b.Subresource
}

// Owners are the managers that own a field, by any operation and subresource.
func Owners(entries []metav1.ManagedFieldsEntry, field ...string) ([]string, error) {
	names := make([]any, 0, len(field))
	for _, name := range field {
		names = append(names, name)
	}
	path, err := fieldpath.MakePath(names...)
	if err != nil {
		return nil, err
	}
	var owners []string
	for _, entry := range entries {
		fields, err := decode(entry)
		if err != nil {
			return nil, err
		}
		if fields.Has(path) {
			owners = append(owners, entry.Manager)
		}
	}
	return owners, nil
}

// Sole are the fields that the manager applies, and that nobody else owns, each as the names that lead to it. What is inside
// of lists is left out.
func Sole(entries []metav1.ManagedFieldsEntry, manager string) ([][]string, error) {
	own, others := fieldpath.NewSet(), fieldpath.NewSet()
	for _, entry := range entries {
		fields, err := decode(entry)
		if err != nil {
			return nil, err
		}
		if entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationApply {
			own = own.Union(fields)
			continue
		}
		others = others.Union(fields)
	}
	var sole [][]string
	own.Difference(others).Leaves().Iterate(func(path fieldpath.Path) {
		names := make([]string, 0, len(path))
		for _, element := range path {
			if element.FieldName == nil {
				return
			}
			names = append(names, *element.FieldName)
		}
		sole = append(sole, names)
	})
	return sole, nil
}

func union(a, b *fieldpath.Set) *fieldpath.Set {
	if a == nil {
		return b
	}
	return a.Union(b)
}

func decode(entry metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	fields := fieldpath.NewSet()
	if entry.FieldsV1 == nil {
		return fields, nil
	}
	if err := fields.FromJSON(entry.FieldsV1.GetRawReader()); err != nil {
		return nil, fmt.Errorf("read the fields of %s in managedFields: %w", entry.Manager, err)
	}
	return fields, nil
}

func encode(fields *fieldpath.Set) (*metav1.FieldsV1, error) {
	text, err := fields.ToJSON()
	if err != nil {
		return nil, err
	}
	return metav1.NewFieldsV1(string(text)), nil
}
