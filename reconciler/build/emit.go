package build

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// encode writes a value as JSON that a YAML parser reads to the same value: characters that YAML forbids or folds are
// escaped.
func encode(value any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	if !bytes.ContainsFunc(out.Bytes(), escaped) {
		return out.Bytes(), nil
	}
	var clean bytes.Buffer
	for rest := out.Bytes(); len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if escaped(r) {
			fmt.Fprintf(&clean, `\u%04x`, r)
		} else {
			clean.Write(rest[:size])
		}
		rest = rest[size:]
	}
	return clean.Bytes(), nil
}

// escaped says whether a character that JSON may leave as it is must be escaped for YAML.
func escaped(r rune) bool {
	return r >= 0x7F && (forbidden(r) || r == 0x85 || r == 0x2028 || r == 0x2029 || r == 0xFEFF)
}

// encodeAll writes documents as a stream.
func encodeAll(documents []document) ([]byte, error) {
	var out bytes.Buffer
	for i, d := range documents {
		if i > 0 {
			out.WriteString("---\n")
		}
		text, err := encode(d.value)
		if err != nil {
			return nil, err
		}
		out.Write(text)
	}
	return out.Bytes(), nil
}

// toNode is a YAML node that says value, so that kustomize can work on it.
func toNode(value any) (*yaml.Node, error) {
	text, err := encode(value)
	if err != nil {
		return nil, err
	}
	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil {
		return nil, err
	}
	return node.Content[0], nil
}

// fromNode is what a node of kustomize's says.
func (p parser) fromNode(file string, node *yaml.Node) (map[string]any, error) {
	if node.Kind == yaml.DocumentNode && len(node.Content) == 1 {
		node = node.Content[0]
	}
	c := conversion{parser: p, file: file, offset: noLines, open: map[*yaml.Node]bool{}}
	value, err := c.value(node, 0)
	if err != nil {
		return nil, err
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return nil, located(file, 0, "kustomize rendered something that is no object")
	}
	return fields, nil
}
