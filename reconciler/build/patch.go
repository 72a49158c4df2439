package build

import (
	"errors"
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/filters/patchstrategicmerge"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"

	v1 "github.com/stageset/stageset/api/v1"
)

// patch applies the patches of a stage in order, with the meaning that they have in a kustomization: a JSON 6902 patch and
// a strategic merge patch with a target apply to every object that the target selects, also to none; a strategic merge
// patch without a target applies to the one object that it names, which must exist.
//
// kustomize itself takes time that grows with the square of the number of objects; here, only the objects that a patch
// applies to are touched.
func (b *builder) patch(objects []Object, patches []v1.Patch) ([]Object, error) {
	for i, p := range patches {
		name := fmt.Sprintf("patches[%d]", i)
		parsed, err := b.parsePatch(name, p)
		if err != nil {
			return nil, err
		}
		if objects, err = parsed.apply(objects); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// stagePatch is a parsed patch; either operations or merges is set.
type stagePatch struct {
	parser
	name       string
	target     *selector
	operations jsonpatch.Patch
	merges     []map[string]any
}

func (b *builder) parsePatch(name string, p v1.Patch) (stagePatch, error) {
	parsed := stagePatch{parser: b.parser, name: name}
	documents, err := b.parse(name, []byte(p.Patch))
	if err != nil {
		return parsed, err
	}
	if parsed.target, err = newSelector(name, p.Target); err != nil {
		return parsed, err
	}
	if len(documents) == 1 {
		if _, isList := documents[0].value.([]any); isList {
			return parsed, parsed.setOperations(documents[0])
		}
	}
	for _, d := range documents {
		fields, ok := d.value.(map[string]any)
		if !ok {
			return parsed, located(name, d.line, "a patch is a mapping (strategic merge) or a list of operations (JSON 6902)")
		}
		parsed.merges = append(parsed.merges, fields)
	}
	switch {
	case len(parsed.merges) == 0:
		return parsed, located(name, 0, "the patch is empty")
	case len(parsed.merges) > 1 && p.Target != nil:
		return parsed, located(name, 0, "with a target, a patch has one document; this has %d", len(parsed.merges))
	}
	return parsed, nil
}

func (p *stagePatch) setOperations(d document) error {
	if p.target == nil {
		return located(p.name, d.line, "a JSON 6902 patch needs a target")
	}
	text, err := encode(d.value)
	if err != nil {
		return located(p.name, d.line, "%w", err)
	}
	if p.operations, err = jsonpatch.DecodePatch(text); err != nil {
		return located(p.name, d.line, "this is no list of JSON 6902 operations")
	}
	return nil
}

func (p stagePatch) apply(objects []Object) ([]Object, error) {
	if p.operations != nil {
		for _, object := range objects {
			if p.target.selects(object) {
				if err := p.operate(object); err != nil {
					return nil, fmt.Errorf("%s: %s (%s): %w", p.name, object, object.Origin, err)
				}
			}
		}
		return objects, nil
	}
	for _, merge := range p.merges {
		var err error
		if objects, err = p.merge(objects, merge); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// operate applies the operations to the object.
func (p stagePatch) operate(object Object) error {
	text, err := encode(object.Object)
	if err != nil {
		return err
	}
	text, err = p.operations.Apply(text)
	if err != nil {
		// The library's errors name paths and operations, but those of its "test" also values.
		return errors.New(withoutValues(err.Error()))
	}
	documents, err := p.parseJSON(p.name, text)
	if err != nil || len(documents) != 1 {
		return errors.New("the result is no object")
	}
	fields, ok := documents[0].value.(map[string]any)
	if !ok {
		return errors.New("the result is no object")
	}
	return p.replace(object, fields)
}

// merge applies a strategic merge patch; "$patch: delete" takes objects away.
func (p stagePatch) merge(objects []Object, merge map[string]any) ([]Object, error) {
	warmUp()
	selects, err := p.selection(merge)
	if err != nil {
		return nil, err
	}
	var kept []Object
	matched := 0
	for _, object := range objects {
		if !selects(object) {
			kept = append(kept, object)
			continue
		}
		matched++
		deleted, err := p.mergeInto(object, merge)
		if err != nil {
			return nil, fmt.Errorf("%s: %s (%s): %w", p.name, object, object.Origin, err)
		}
		if !deleted {
			kept = append(kept, object)
		}
	}
	if p.target == nil && matched != 1 {
		return nil, fmt.Errorf("%s: %d objects of the stage are the %s that the patch names; set a target or mend the name",
			p.name, matched, Object{Unstructured: &unstructured.Unstructured{Object: merge}})
	}
	return kept, nil
}

// selection says which objects a strategic merge patch applies to.
func (p stagePatch) selection(merge map[string]any) (func(Object) bool, error) {
	if p.target != nil {
		return p.target.selects, nil
	}
	named := Object{&unstructured.Unstructured{Object: merge}, p.name}
	if err := named.checkIdentity(); err != nil {
		return nil, fmt.Errorf("%s: without a target, a patch names its object: %w", p.name, err)
	}
	id := named.id()
	return func(object Object) bool {
		return object.GetName() == id.Name && object.GetKind() == id.Kind && object.id().Equals(id)
	}, nil
}

func (p stagePatch) mergeInto(object Object, merge map[string]any) (deleted bool, err error) {
	target, err := toNode(object.Object)
	if err != nil {
		return false, err
	}
	patch, err := toNode(merge)
	if err != nil {
		return false, err
	}
	results, err := patchstrategicmerge.Filter{Patch: kyaml.NewRNode(patch)}.Filter([]*kyaml.RNode{kyaml.NewRNode(target)})
	if err != nil {
		return false, errors.New(withoutValues(err.Error()))
	}
	if len(results) == 0 || results[0].IsNilOrEmpty() {
		return true, nil
	}
	fields, err := p.fromNode(p.name, results[0].YNode())
	if err != nil {
		return false, err
	}
	return false, p.replace(object, fields)
}

// replace gives the object the patched fields. Kind, name and namespace stay what they were, as kustomize has it.
func (p stagePatch) replace(object Object, fields map[string]any) error {
	patched := Object{&unstructured.Unstructured{Object: fields}, object.Origin}
	if _, ok := fields["metadata"].(map[string]any); !ok {
		return errors.New("the patch removes metadata")
	}
	patched.SetKind(object.GetKind())
	patched.SetName(object.GetName())
	patched.SetNamespace(object.GetNamespace())
	if err := patched.check(); err != nil {
		return err
	}
	object.Unstructured.Object = fields
	return nil
}
