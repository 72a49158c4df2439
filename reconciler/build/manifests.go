package build

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is a rendered object.
type Object struct {
	*unstructured.Unstructured
	// Origin is where the object comes from: file:line, or the file alone where kustomize rendered it and the line is not
	// known.
	Origin string
}

// String names the object, as in messages.
func (o Object) String() string {
	name := o.GetName()
	if namespace := o.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	return o.GroupVersionKind().Kind + " " + name
}

// Manifests are the rendered objects of a stage. They are shared between goroutines and passes: whoever wants to change an
// object changes a copy.
type Manifests struct {
	objects []Object
	ignored []string
	size    int64
}

// Objects are the objects in the order in which they were rendered. Neither the slice nor the objects may be changed.
func (m Manifests) Objects() []Object { return m.objects }

// Ignored are the files of a plain directory that are no manifests by their extension, sorted.
func (m Manifests) Ignored() []string { return m.ignored }

// Size is roughly what the objects take in memory, in bytes.
func (m Manifests) Size() int64 { return m.size }

// objectsOf are the objects of a document, Lists flattened at any depth.
func objectsOf(file string, d document) ([]Object, error) {
	return flatten(nil, d.value, fmt.Sprintf("%s:%d", file, d.line), 0)
}

// flatten adds value to objects: an object, or the items of a List, which may be Lists again. Items of a typed list
// (ConfigMapList) may leave out their kind, as the API server does when it answers a list request.
func flatten(objects []Object, value any, origin string, depth int) ([]Object, error) {
	fields, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s: a manifest is a mapping; this is a %s", origin, kindOfValue(value))
	}
	kind, _ := fields["kind"].(string)
	items, isList := fields["items"].([]any)
	if fields["items"] == nil && kind == "List" {
		isList = true
	}
	if !strings.HasSuffix(kind, "List") || !isList {
		return append(objects, Object{&unstructured.Unstructured{Object: fields}, origin}), nil
	}
	if depth > maxNesting {
		return nil, fmt.Errorf("%s: Lists are nested more than %d deep", origin, maxNesting)
	}
	var err error
	for i, item := range items {
		inherit(item, strings.TrimSuffix(kind, "List"), fields["apiVersion"])
		itemOrigin := fmt.Sprintf("%s, items[%d]", origin, i)
		if objects, err = flatten(objects, item, itemOrigin, depth+1); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// inherit gives an item of a typed list the kind and apiVersion that follow from the list.
func inherit(item any, kind string, apiVersion any) {
	fields, ok := item.(map[string]any)
	if !ok || kind == "" || fields["kind"] != nil || fields["apiVersion"] != nil {
		return
	}
	fields["kind"], fields["apiVersion"] = kind, apiVersion
}

func kindOfValue(value any) string {
	switch value.(type) {
	case map[string]any:
		return "mapping"
	case []any:
		return "list"
	case string:
		return "string"
	case bool:
		return "boolean"
	case nil:
		return "null"
	default:
		return "number"
	}
}

// check says what keeps o from being an object that can be applied.
func (o Object) check() error {
	if err := o.checkIdentity(); err != nil {
		return fmt.Errorf("%s: %w", o.Origin, err)
	}
	for _, field := range []string{"labels", "annotations"} {
		if err := o.checkTexts("metadata", field); err != nil {
			return fmt.Errorf("%s: %s: %w", o.Origin, o, err)
		}
	}
	return nil
}

func (o Object) checkIdentity() error {
	for _, field := range []string{"apiVersion", "kind"} {
		switch text, isText := o.Object[field].(string); {
		case o.Object[field] == nil, isText && text == "":
			return fmt.Errorf("this is no manifest: %s is missing", field)
		case !isText:
			return fmt.Errorf("%s is a %s, not a string", field, kindOfValue(o.Object[field]))
		}
	}
	if _, err := schema.ParseGroupVersion(o.GetAPIVersion()); err != nil {
		return fmt.Errorf("apiVersion %q is not group/version", shorten(o.GetAPIVersion()))
	}
	metadata, ok := o.Object["metadata"].(map[string]any)
	if !ok {
		return fmt.Errorf("%s without metadata", o.GetKind())
	}
	if metadata["generateName"] != nil {
		return fmt.Errorf("%s uses generateName, which would make another object in each pass; give it a name", o.GetKind())
	}
	for _, field := range []string{"name", "namespace"} {
		if _, isText := metadata[field].(string); metadata[field] != nil && !isText {
			return fmt.Errorf("%s: metadata.%s is a %s; quote it", o.GetKind(), field, kindOfValue(metadata[field]))
		}
	}
	if o.GetName() == "" {
		return fmt.Errorf("%s without a name", o.GetKind())
	}
	return nil
}

// checkTexts says which value of a map of strings is none. Null is the empty string, as to the API server's decoder.
func (o Object) checkTexts(path ...string) error {
	value, _, err := unstructured.NestedFieldNoCopy(o.Object, path...)
	if err != nil || value == nil {
		return err
	}
	texts, ok := value.(map[string]any)
	if !ok {
		return fmt.Errorf("%s is a %s, not a mapping", strings.Join(path, "."), kindOfValue(value))
	}
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		switch texts[key].(type) {
		case string:
		case nil:
			texts[key] = ""
		default:
			return fmt.Errorf("%s: the value of %q is a %s; quote it", strings.Join(path, "."), key, kindOfValue(texts[key]))
		}
	}
	return nil
}

// foldSecret moves the stringData of a Secret into its data, as the API server would: a field that is only ever written
// cannot be compared with what is live. Its messages name keys, never values.
func (o Object) foldSecret() error {
	if o.GroupVersionKind() != (schema.GroupVersionKind{Version: "v1", Kind: "Secret"}) {
		return nil
	}
	for _, field := range []string{"data", "stringData"} {
		if err := o.checkTexts(field); err != nil {
			return fmt.Errorf("%s: %s: %w", o.Origin, o, err)
		}
	}
	data, _ := o.Object["data"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(data)) {
		text, _ := data[key].(string)
		if _, err := base64.StdEncoding.DecodeString(text); err != nil {
			return fmt.Errorf("%s: %s: data: the value of %q is not base64", o.Origin, o, key)
		}
	}
	texts, ok := o.Object["stringData"].(map[string]any)
	if !ok {
		return nil
	}
	if data == nil {
		data = make(map[string]any, len(texts))
	}
	for key, value := range texts {
		text, _ := value.(string) // checked above
		data[key] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	delete(o.Object, "stringData")
	if len(data) > 0 {
		o.Object["data"] = data
	}
	return nil
}
