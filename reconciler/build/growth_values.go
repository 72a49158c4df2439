package build

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/resid"
	"sigs.k8s.io/kustomize/kyaml/utils"
)

// replacementsOf are the replacements of a vetted kustomization, with those of its transformers.
func (s *scan) replacementsOf(k *kustomization) ([]types.Replacement, error) {
	var all []types.Replacement
	add := func(fields []types.ReplacementField) error {
		for _, field := range fields {
			if field.Path == "" {
				all = append(all, field.Replacement)
				continue
			}
			found, err := s.replacementFile(k, field.Path)
			if err != nil {
				return err
			}
			all = append(all, found...)
		}
		return nil
	}
	if err := add(k.content.Replacements); err != nil {
		return nil, err
	}
	for _, text := range k.content.Transformers {
		for _, d := range decodeAll(text) {
			var args struct {
				types.TypeMeta
				Replacements []types.ReplacementField `json:"replacements"`
			}
			if json.Unmarshal(d, &args) != nil || args.Kind != "ReplacementTransformer" {
				continue
			}
			if err := add(args.Replacements); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// replacementFile reads a file of one replacement, or a list of them.
func (s *scan) replacementFile(k *kustomization, reference string) ([]types.Replacement, error) {
	content := s.fileOf(k, reference)
	var list []types.Replacement
	if json.Unmarshal(content, &list) == nil {
		return list, nil
	}
	var one types.Replacement
	if err := json.Unmarshal(content, &one); err != nil {
		return nil, located(k.file, 0, "replacements: %q has no replacements", shorten(reference))
	}
	return []types.Replacement{one}, nil
}

// copied is what a replacement or a var copies: its size in bytes, and how many fields it has; none for a text.
type copied struct{ size, fields int64 }

// larger is the larger of two.
func (c copied) larger(other copied) copied {
	return copied{max(c.size, other.size), max(c.fields, other.fields)}
}

// plus is both together; more than the bound makes no difference.
func (c copied) plus(other copied) copied {
	return copied{min(c.size+other.size, maxGrowth), min(c.fields+other.fields, maxGrowth)}
}

// replace counts what a replacement copies.
func (g *growth) replace(k *kustomization, r types.Replacement, items []*item) error {
	value, err := g.source(k, r, items)
	if err != nil {
		return err
	}
	for _, target := range r.Targets {
		if target == nil || target.Select == nil {
			continue
		}
		found, err := g.selected(k, target.Select, items)
		if err != nil {
			return err
		}
		paths := target.FieldPaths
		if len(paths) == 0 {
			paths = []string{types.DefaultReplacementFieldPath}
		}
		for _, fieldPath := range paths {
			if err := g.write(k, fieldPath, value, found); err != nil {
				return err
			}
		}
	}
	return nil
}

// write counts a value that is copied to a field of each of the items, and notes it there.
func (g *growth) write(k *kustomization, fieldPath string, value copied, found []*item) error {
	const costOfNote = 16
	if err := g.step(k, costOfNote*len(found)); err != nil {
		return err
	}
	steps := utils.SmarterPathSplitter(fieldPath, ".")
	value.size += int64(len(fieldPath)) + 2*nodeCost*int64(len(steps)) // of fields that are created
	for _, it := range found {
		places := int64(1)
		if slices.ContainsFunc(steps, isPattern) {
			places = it.fields
		}
		if err := g.add(k, "replacements", it, value.size*places); err != nil {
			return err
		}
		it.fields += value.fields * places
		it.written = append(it.written, writtenField{steps, value})
	}
	return nil
}

// source is what a replacement copies.
func (g *growth) source(k *kustomization, r types.Replacement, items []*item) (copied, error) {
	switch {
	case r.SourceValue != nil:
		return copied{size: int64(len(*r.SourceValue))}, nil
	case r.Source == nil:
		return copied{}, nil
	case r.Source.FieldPath == "":
		r.Source.FieldPath = types.DefaultReplacementFieldPath
	}
	return g.field(k, r.Source.ResId, r.Source.FieldPath, items)
}

// field is the largest that a field of the items that id may select can be: as it is in the manifest, with all that was
// written to it, and patched.
func (g *growth) field(k *kustomization, id resid.ResId, fieldPath string, items []*item) (copied, error) {
	id.Kind = regexp.QuoteMeta(id.Kind)
	found, err := g.selected(k, &types.Selector{ResId: id}, items)
	if err != nil {
		return copied{}, err
	}
	steps := utils.SmarterPathSplitter(fieldPath, ".")
	var largest copied
	for _, it := range found {
		if err := g.step(k, len(it.written)); err != nil {
			return copied{}, err
		}
		value := g.inManifest(it, steps)
		for _, w := range it.written {
			if overlap(w.path, steps) {
				value = value.plus(w.value)
			}
		}
		largest = largest.larger(value)
	}
	return largest.plus(copied{size: g.largestPatch}), nil
}

// inManifest is a field of the manifest of an item.
func (g *growth) inManifest(it *item, steps []string) copied {
	if it.file == "" {
		if len(steps) > 1 {
			return copied{size: it.entries[steps[1]]}
		}
		return copied{it.size, it.fields}
	}
	if g.manifests[it.file] == nil {
		g.manifests[it.file] = g.scan.manifestsIn(it.file)
	}
	var largest copied
	for _, object := range g.manifests[it.file][it.kind+"/"+it.name] {
		largest = largest.larger(fieldIn(object.Object, steps))
	}
	return largest
}

// manifestsIn are the objects of a vetted file by kind and name.
func (s *scan) manifestsIn(file string) map[string][]Object {
	found := map[string][]Object{}
	for _, d := range decodeAll(string(s.files["/"+file])) {
		var value any
		if json.Unmarshal(d, &value) != nil {
			continue
		}
		objects, _ := objectsOf(file, document{value: value}) // the scan has read it before
		for _, object := range objects {
			key := object.GetKind() + "/" + object.GetName()
			found[key] = append(found[key], object)
		}
	}
	return found
}

// fieldIn is the largest field in value that the steps may lead to.
func fieldIn(value any, steps []string) copied {
	if len(steps) == 0 {
		found := copied{size: sizeOfValue(value)}
		if _, isText := value.(string); !isText {
			found.fields = found.size / nodeCost
		}
		return found
	}
	var largest copied
	switch value := value.(type) {
	case map[string]any:
		return fieldIn(value[steps[0]], steps[1:])
	case []any:
		for _, element := range value {
			largest = largest.larger(fieldIn(element, steps[1:]))
		}
	}
	return largest
}

// isPattern says whether a step of a path may lead to more than one field.
func isPattern(step string) bool { return step == "*" || strings.HasPrefix(step, "[") }

// overlap says whether one of two paths may lead to the other's field, or to a part of it.
func overlap(a, b []string) bool {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] && !isElement(a[i]) && !isElement(b[i]) {
			return false
		}
	}
	return true
}

// isElement says whether a step leads to elements of a list.
func isElement(step string) bool {
	_, err := strconv.Atoi(step)
	return err == nil || step == "-" || isPattern(step)
}

// expand counts what a var of kustomize's copies: its value to wherever it is referred to.
func (g *growth) expand(k *kustomization, v types.Var, items []*item) error {
	fieldPath := v.FieldRef.FieldPath
	if fieldPath == "" {
		fieldPath = types.DefaultReplacementFieldPath
	}
	id := resIDOfKind(v.ObjRef.Kind)
	id.Name = v.ObjRef.Name
	value, err := g.field(k, id, fieldPath, items)
	if err != nil {
		return err
	}
	if err := g.step(k, len(items)); err != nil {
		return err
	}
	for _, it := range items {
		if err := g.add(k, "vars", it, value.size*it.references[v.Name]); err != nil {
			return err
		}
	}
	return nil
}
