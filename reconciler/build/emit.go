package build

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// encode writes a value as JSON that a YAML parser reads to the same value: characters that YAML forbids or folds are
// escaped, and numbers that are no integers do not look like some.
func encode(value any) ([]byte, error) {
	if hasHuge(value) {
		value = withExponents(value)
	}
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

// isHuge says whether encoding/json writes a float as an integer that does not fit into 64 bits.
func isHuge(number float64) bool { return math.Abs(number) >= 1<<63 && math.Abs(number) < 1e21 }

func hasHuge(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for _, field := range value {
			if hasHuge(field) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(value, hasHuge)
	case float64:
		return isHuge(value)
	}
	return false
}

// withExponents is value with exponents in its huge numbers.
func withExponents(value any) any {
	switch value := value.(type) {
	case map[string]any:
		fields := make(map[string]any, len(value))
		for key, field := range value {
			fields[key] = withExponents(field)
		}
		return fields
	case []any:
		items := make([]any, len(value))
		for i, item := range value {
			items[i] = withExponents(item)
		}
		return items
	case float64:
		if isHuge(value) {
			return json.Number(strconv.FormatFloat(value, 'e', -1, 64))
		}
	}
	return value
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
