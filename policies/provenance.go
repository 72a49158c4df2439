package policies

import (
	"context"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/policies/internal/schema"
)

// claimSet is which policy filled in which field: paths as render has them, and names of policies.
type claimSet map[string]string

// maxClaims bounds how much of an annotation that anybody can write is looked at.
const maxClaims = 256

// parseClaims are the claims of the annotation of object. What does not look like one is dropped.
func parseClaims(object *unstructured.Unstructured) claimSet {
	claims := claimSet{}
	if object == nil {
		return claims
	}
	for claim := range strings.SplitSeq(object.GetAnnotations()[v1.AnnotationDefaultedBy], ",") {
		if field, policy, ok := strings.Cut(claim, "="); ok && len(claims) < maxClaims {
			claims[field] = policy
		}
	}
	return claims
}

// annotate writes claims to object, and takes the annotation away if there are none.
func annotate(object *unstructured.Unstructured, claims claimSet) *unstructured.Unstructured {
	annotations := object.GetAnnotations()
	if _, present := annotations[v1.AnnotationDefaultedBy]; !present && len(claims) == 0 {
		return object
	}
	entries := make([]string, 0, len(claims))
	for _, field := range slices.Sorted(maps.Keys(claims)) {
		entries = append(entries, field+"="+claims[field])
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	delete(annotations, v1.AnnotationDefaultedBy)
	if len(entries) > 0 {
		annotations[v1.AnnotationDefaultedBy] = strings.Join(entries, ",")
	}
	object.SetAnnotations(annotations)
	return object
}

// verify are those claims of the original object that are true of result. The annotation comes back with every update, and
// anybody can write it, so nothing is taken from it without proof: a claim that the old object had too, about a field that
// did not change since, or one that comes true when the field is taken away and defaulted again. The second is how a
// repeated call on the same object finds what the first one did.
func (d *defaulter) verify(ctx context.Context, result *unstructured.Unstructured, claims, filled claimSet) claimSet {
	verified, open := claimSet{}, claimSet{}
	current, former := fieldsOf(result), fieldsOf(d.OldObject)
	had := parseClaims(d.OldObject)
	for field, policy := range claims {
		now, set := current.values[field]
		if _, done := filled[field]; done || !set {
			continue
		}
		if before, was := former.values[field]; was && had[field] == policy && value.Equals(now, before) {
			verified[field] = policy
		} else {
			open[field] = policy
		}
	}
	if len(open) == 0 {
		return verified
	}
	stripped, err := current.without(open)
	if err != nil {
		return verified
	}
	// An error has been reported when the object itself was defaulted.
	again, refilled, _ := d.run(ctx, stripped)
	restored := fieldsOf(again)
	for field, policy := range open {
		if now, set := restored.values[field]; set && refilled[field] == policy && value.Equals(now, current.values[field]) {
			verified[field] = policy
		}
	}
	return verified
}

// fieldSet is every field of an object, by its path as render has it.
type fieldSet struct {
	object *typed.TypedValue
	paths  map[string]fieldpath.Path
	values map[string]value.Value
}

// fieldsOf are the fields of object; none if it is nil, or is not what the schema describes.
func fieldsOf(object *unstructured.Unstructured) fieldSet {
	set := fieldSet{paths: map[string]fieldpath.Path{}, values: map[string]value.Value{}}
	if object == nil {
		return set
	}
	converter, err := schema.Converter()
	if err != nil {
		return set
	}
	set.object, err = converter.ObjectToTyped(object, typed.AllowDuplicates)
	if err != nil {
		return set
	}
	fields, err := set.object.ToFieldSet()
	if err != nil {
		return set
	}
	fields.Leaves().Iterate(func(leaf fieldpath.Path) {
		for end := range leaf {
			path := leaf[:end+1]
			if found := lookup(set.object.AsValue(), path); found != nil {
				name := render(path)
				set.paths[name], set.values[name] = path.Copy(), found
			}
		}
	})
	return set
}

// without is the object without the fields that claims speak of.
func (l fieldSet) without(claims claimSet) (*unstructured.Unstructured, error) {
	converter, err := schema.Converter()
	if err != nil {
		return nil, err
	}
	fields := &fieldpath.Set{}
	for field := range claims {
		fields.Insert(l.paths[field])
	}
	return fromTyped(converter, l.object.RemoveItems(fields))
}
