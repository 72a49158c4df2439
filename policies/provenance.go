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

// annotate is object with claims in the annotation, and without the annotation if there are none.
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
	if len(annotations) == 0 {
		annotations = nil
	}
	annotated := object.DeepCopy()
	annotated.SetAnnotations(annotations)
	return annotated
}

// verify are those claims of the original object that are true of result. The annotation comes back with every update, and
// anybody can write it, so nothing is taken from it without proof: a claim that the old object had too, about a field that
// did not change since, or one that comes true when the field is taken away, or, if its policy overrides, is another, and is
// defaulted again. That is how a repeated call on the same object finds what the first one did. It does not find an override
// whose value is made from the one that it replaced.
func (d *defaulter) verify(ctx context.Context, result *unstructured.Unstructured, claims, filled claimSet) claimSet {
	verified, open := claimSet{}, claimSet{}
	if len(claims) == 0 {
		return verified
	}
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
	for field := range d.prove(ctx, current, open, current.without) {
		verified[field] = open[field]
		delete(open, field)
	}
	overrides := map[string]bool{}
	for _, p := range d.policies {
		overrides[p.name] = slices.ContainsFunc(p.mutations, func(m mutation) bool { return m.override })
	}
	maps.DeleteFunc(open, func(_, policy string) bool { return !overrides[policy] })
	maps.Copy(verified, d.prove(ctx, current, open, current.otherwise))
	return verified
}

// prove are those claims that come true when the object, which current are the fields of, is defaulted as alter leaves it.
// A mutation that fails then, because it reads what is not there, proves nothing and hinders no other.
func (d *defaulter) prove(
	ctx context.Context, current fieldSet, claims claimSet, alter func(claimSet) (*unstructured.Unstructured, error),
) claimSet {
	proven := claimSet{}
	if len(claims) == 0 {
		return proven
	}
	altered, err := alter(claims)
	if err != nil {
		return proven
	}
	proving := *d
	proving.proving = true
	// An error has been reported when the object itself was defaulted.
	again, refilled, _ := proving.run(ctx, altered)
	restored := fieldsOf(again)
	for field, policy := range claims {
		if now, set := restored.values[field]; set && refilled[field] == policy && value.Equals(now, current.values[field]) {
			proven[field] = policy
		}
	}
	return proven
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

// otherwise is the object with other values of the same types in the fields that claims speak of, and without the items of
// lists that they speak of.
func (l fieldSet) otherwise(claims claimSet) (*unstructured.Unstructured, error) {
	converter, err := schema.Converter()
	if err != nil {
		return nil, err
	}
	object, err := fromTyped(converter, l.object)
	if err != nil {
		return nil, err
	}
	for field := range claims {
		alter(object.Object, l.paths[field])
	}
	return object, nil
}

// alter is v with what path leads to taken out of its list, or else replaced by another value of its type.
func alter(v any, path fieldpath.Path) any {
	if len(path) == 0 {
		return another(v)
	}
	switch inside := v.(type) {
	case map[string]any:
		if name := path[0].FieldName; name != nil && inside[*name] != nil {
			inside[*name] = alter(inside[*name], path[1:])
		}
	case []any:
		i := indexOf(value.NewValueInterface(inside), path[0])
		switch {
		case i < 0:
		case len(path) == 1:
			return slices.Delete(inside, i, i+1)
		default:
			inside[i] = alter(inside[i], path[1:])
		}
	}
	return v
}

// another is a value of the type of v that is not v, if there is one.
func another(v any) any {
	switch v := v.(type) {
	case string:
		if v == "" {
			return "another"
		}
		return ""
	case bool:
		return !v
	case int64:
		return v + 1
	case float64:
		return v + 1
	case []any:
		return []any{}
	case map[string]any:
		return map[string]any{}
	default:
		return v
	}
}
