package build

import (
	"encoding/json"
	"maps"
	"path"
	"regexp"
	"strings"

	"sigs.k8s.io/kustomize/api/types"
)

// item is an object that kustomize works on.
type item struct {
	kind, name string
	// file has its manifest. What a generator makes has none, but the sizes of its entries by key.
	file    string
	entries map[string]int64
	// size is its own, and that of all that was copied into it.
	size int64
	// maps, images and names are the places in it that labels and annotations, images, and names are copied to; fields are
	// all that there are.
	maps, images, names, fields int64
	// references counts the $(name) in its texts.
	references map[string]int64
	// written are the fields that replacements have written.
	written []writtenField
}

// newItem measures a manifest.
func newItem(object Object, file string) *item {
	it := &item{
		kind: object.GetKind(), name: object.GetName(), file: file, size: sizeOfValue(object.Object),
		references: map[string]int64{},
	}
	it.measure(object.Object)
	return it
}

// writtenField is a field of an item that a replacement has written: what is taken from it later may be that much larger.
type writtenField struct {
	path  []string
	value copied
}

// clone is the same object in another visit to its kustomization.
func (it *item) clone() *item {
	copied := *it
	copied.references = maps.Clone(it.references)
	return &copied
}

// measure counts the places in value. A list of texts may be one of names.
func (it *item) measure(value any) {
	it.fields++
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			switch {
			case key == "metadata", strings.HasSuffix(key, "elector"):
				it.maps++
			case key == "image":
				it.images++
			case strings.HasSuffix(key, "ame"), strings.HasSuffix(key, "amespace"):
				it.names++
			}
			it.measure(field)
		}
	case []any:
		it.names += int64(len(value))
		for _, element := range value {
			it.measure(element)
		}
	case string:
		it.refer(referencesIn(value))
	}
}

// varReference is a reference to a var of kustomize's.
var varReference = regexp.MustCompile(`\$\(([^()$]+)\)`)

// referencesIn counts the references to vars in a text, by name.
func referencesIn(text string) map[string]int64 {
	if !strings.Contains(text, "$(") {
		return nil
	}
	counts := map[string]int64{}
	for _, match := range varReference.FindAllStringSubmatch(text, -1) {
		counts[match[1]]++
	}
	return counts
}

// refer adds references.
func (it *item) refer(counts map[string]int64) {
	for name, count := range counts {
		it.references[name] += count
	}
}

// generatedBy are the ConfigMaps and Secrets that the generators of a kustomization make.
func (s *scan) generatedBy(k *kustomization) []*item {
	var items []*item
	for _, args := range k.content.ConfigMapGenerator {
		items = append(items, s.generated("ConfigMap", args.GeneratorArgs))
	}
	for _, args := range k.content.SecretGenerator {
		items = append(items, s.generated("Secret", args.GeneratorArgs))
	}
	for _, text := range k.content.Generators {
		for _, d := range decodeAll(text) {
			var args struct {
				types.TypeMeta
				types.GeneratorArgs
			}
			if json.Unmarshal(d, &args) == nil {
				items = append(items, s.generated(strings.TrimSuffix(args.Kind, "Generator"), args.GeneratorArgs))
			}
		}
	}
	return items
}

func (s *scan) generated(kind string, args types.GeneratorArgs) *item {
	it := &item{kind: kind, name: args.Name, maps: 1, fields: 1, entries: map[string]int64{}, references: map[string]int64{}}
	it.size = 8 * nodeCost // kind, metadata and so on
	add := func(key, value string) {
		it.entries[key] = int64(len(value))
		it.size += int64(len(key)+len(value)*4/3) + 2*nodeCost // in a Secret as base64
		it.fields++
		it.refer(referencesIn(value))
	}
	for _, literal := range args.LiteralSources {
		key, value, _ := strings.Cut(literal, "=")
		add(key, value)
	}
	for _, source := range args.FileSources {
		key, file, named := strings.Cut(source, "=")
		if !named {
			key, file = path.Base(source), source
		}
		add(key, string(s.files[file]))
	}
	for _, file := range args.EnvSources {
		for line := range strings.Lines(string(s.files[file])) {
			key, value, _ := strings.Cut(line, "=")
			add(key, value)
		}
	}
	return it
}

// decodeAll are the documents of a text of encodeAll.
func decodeAll(text string) []json.RawMessage {
	var documents []json.RawMessage
	for _, d := range strings.Split(text, "\n---\n") {
		documents = append(documents, json.RawMessage(d))
	}
	return documents
}

// matcher says which items a target of that kind and name, which are patterns or empty, may select.
func matcher(kind, name string) (func(*item) bool, error) {
	kinds, err := types.NewSelectorRegex(&types.Selector{ResId: resIDOfKind(kind)})
	if err != nil {
		return nil, err
	}
	isLiteral := name != "" && regexp.QuoteMeta(name) == strings.ReplaceAll(name, ".", `\.`)
	return func(it *item) bool {
		return kinds.MatchGvk(resIDOfKind(it.kind).Gvk) && (!isLiteral || strings.Contains(name, it.name))
	}, nil
}
