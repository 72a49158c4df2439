package build

import (
	"encoding/json"
	"path"
	"strings"

	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/resid"
)

func resIDOfKind(kind string) resid.ResId { return resid.ResId{Gvk: resid.Gvk{Kind: kind}} }

// kustomizedPatch is a patch of a kustomization. Without a target it is for the one object that it names.
type kustomizedPatch struct {
	text   string
	target *types.Selector
}

// fileOf is the content of a file that a vetted kustomization refers to; nil if reference is none.
func (s *scan) fileOf(k *kustomization, reference string) []byte {
	if !strings.HasPrefix(reference, ".") {
		return nil // texts of YAML do not begin with a dot, as vetted references do
	}
	return s.files[path.Join("/", k.dir, reference)]
}

// patchesOf are the patches of a vetted kustomization, with those of its transformers.
func (s *scan) patchesOf(k *kustomization) []kustomizedPatch {
	var patches []kustomizedPatch
	add := func(reference, text string, target *types.Selector) {
		if content := s.fileOf(k, reference); content != nil {
			text = string(content)
		}
		patches = append(patches, kustomizedPatch{text: text, target: target})
	}
	for _, p := range k.content.Patches {
		add(p.Path, p.Patch, p.Target)
	}
	for _, p := range k.content.PatchesJson6902 {
		add(p.Path, p.Patch, p.Target)
	}
	for _, p := range k.content.PatchesStrategicMerge {
		add(string(p), string(p), nil)
	}
	for _, text := range k.content.Transformers {
		for _, d := range decodeAll(text) {
			var args struct {
				types.TypeMeta
				types.Patch
				JSONOp  string   `json:"jsonOp"`
				Patches string   `json:"patches"`
				Paths   []string `json:"paths"`
			}
			if json.Unmarshal(d, &args) != nil || !strings.HasPrefix(args.Kind, "Patch") {
				continue
			}
			add(args.Path, args.Patch.Patch+args.JSONOp+args.Patches, args.Target)
			for _, reference := range args.Paths {
				add(reference, "", nil)
			}
		}
	}
	return patches
}

// patch counts a patch, and what its operations copy within an object.
func (g *growth) patch(k *kustomization, p kustomizedPatch, items []*item) error {
	found, err := g.selected(k, p.target, items)
	if err != nil {
		return err
	}
	if p.target == nil {
		found = found[:min(len(found), 1)]
	}
	references := referencesIn(p.text)
	if err := g.step(k, len(found)*len(references)); err != nil {
		return err
	}
	copies := min(strings.Count(p.text, `"copy"`), maxDoublings)
	for _, it := range found {
		size := sizeOfText(p.text)
		it.fields += size / nodeCost
		if copies > 0 {
			size += min(maxPatchCopies, it.size<<copies)
		}
		it.refer(references)
		if err := g.add(k, "patches", it, size); err != nil {
			return err
		}
	}
	return nil
}

// maxDoublings is from where on another copy operation makes no difference.
const maxDoublings = 24

// copiedText is a text of a kustomization that goes into all objects.
type copiedText struct {
	field  string
	size   int64
	places func(*item) int64
}

// textsOf are the texts of a kustomization that go into all objects.
func (g *growth) textsOf(content *types.Kustomization) []copiedText {
	inMaps := func(it *item) int64 { return it.maps + 1 }
	inNames := func(it *item) int64 { return it.names + 1 }
	inFields := func(it *item) int64 { return it.fields }
	texts := []copiedText{
		{"commonLabels", sizeOfTexts(content.CommonLabels), inMaps},
		{"commonAnnotations", sizeOfTexts(content.CommonAnnotations), inMaps},
		{"namePrefix", int64(len(content.NamePrefix)), inNames},
		{"nameSuffix", int64(len(content.NameSuffix)), inNames},
		{"namespace", int64(len(content.Namespace)), inNames},
	}
	for _, label := range content.Labels {
		places := inMaps
		if len(label.FieldSpecs) > 0 {
			places = inFields
		}
		texts = append(texts, copiedText{"labels", sizeOfTexts(label.Pairs), places})
	}
	for _, image := range content.Images {
		size := int64(len(image.NewName) + len(image.NewTag) + len(image.TagSuffix) + len(image.Digest))
		texts = append(texts, copiedText{"images", size, func(it *item) int64 { return it.images }})
	}
	if options := content.GeneratorOptions; options != nil {
		size := sizeOfTexts(options.Labels) + sizeOfTexts(options.Annotations)
		texts = append(texts, copiedText{"generatorOptions", size, inMaps})
	}
	for _, text := range content.Transformers {
		if !strings.Contains(text, `"Patch`) && !strings.Contains(text, `"ReplacementTransformer"`) && text != optOutText {
			texts = append(texts, copiedText{"transformers", sizeOfText(text), inFields})
		}
	}
	return texts
}

// metadata counts what buildMetadata notes on each object about each transformer; each time, kustomize reads what it noted
// before.
func (g *growth) metadata(k *kustomization, items []*item) error {
	if len(k.content.BuildMetadata) == 0 {
		return nil
	}
	const ownTransformers, sizeOfNote, costOfNote = 16, 256, 8
	c := k.content
	count := len(g.scan.patchesOf(k)) + len(c.Labels) + len(c.Images) + len(c.Replicas) + len(c.Transformers) + ownTransformers
	if err := g.step(k, costOfNote*len(items)*count*count/2); err != nil {
		return err
	}
	for _, it := range items {
		if err := g.add(k, "buildMetadata", it, int64(count)*sizeOfNote); err != nil {
			return err
		}
	}
	return nil
}

// sizeOfText is what a text of JSON or YAML can take as values.
func sizeOfText(text string) int64 {
	return int64(len(text)) + nodeCost*int64(1+2*strings.Count(text, ":")+strings.Count(text, ",")+strings.Count(text, "\n"))
}

// sizeOfTexts is what a map of texts takes.
func sizeOfTexts(texts map[string]string) int64 {
	size := int64(0)
	for key, text := range texts {
		size += int64(len(key)+len(text)) + 3*nodeCost // with the map, which may not be there yet
	}
	return size
}
