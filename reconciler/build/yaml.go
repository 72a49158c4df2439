package build

import (
	"bytes"
	"errors"
	"io"
	"math"
	"path"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/stageset/stageset/reconciler/failure"
)

// document is one document of a file.
type document struct {
	// value is what it says, of the types that unstructured objects have: map[string]any, []any, string, int64, float64,
	// bool and nil.
	value any
	// line is the number of its first line with content.
	line int
	// lines finds the line of a text in the document, for messages.
	lines func(text string) int
}

// parser reads manifests strictly: what is ambiguous, lossy or only accepted by some parsers is an error with its line. Its
// errors tell no values, which may be those of a Secret.
type parser struct {
	objects *budget
}

// parse reads the documents of a file, JSON by its extension and else YAML, leaving out empty ones.
func (p parser) parse(file string, data []byte) ([]document, error) {
	data, err := plainText(file, data)
	if err != nil {
		return nil, err
	}
	if strings.EqualFold(path.Ext(file), ".json") {
		return p.parseJSON(file, data)
	}
	var documents []document
	for _, c := range split(data) {
		if err := c.checkSize(); err != nil {
			return nil, located(file, c.line, "%w", err)
		}
		found, err := p.parseChunk(file, c)
		if err != nil {
			return nil, err
		}
		documents = append(documents, found...)
	}
	return documents, nil
}

// parseChunk reads a chunk, which holds more than one document only where one ends with "...".
func (p parser) parseChunk(file string, c chunk) ([]document, error) {
	var documents []document
	decoder := yaml.NewDecoder(bytes.NewReader(c.text))
	for {
		var node yaml.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, syntaxError(file, c, err)
		}
		if len(node.Content) == 0 || isEmpty(node.Content[0]) {
			continue
		}
		root := node.Content[0]
		conversion := conversion{parser: p, file: file, offset: c.line - 1, open: map[*yaml.Node]bool{}}
		value, err := conversion.value(root, 0)
		if err != nil {
			return nil, err
		}
		documents = append(documents, document{value: value, line: conversion.line(root), lines: func(text string) int {
			if found := find(root, text); found != nil {
				return conversion.line(found)
			}
			return conversion.line(root)
		}})
	}
}

// isEmpty says whether a document has no content but comments.
func isEmpty(node *yaml.Node) bool {
	return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" && node.Value == ""
}

// find is the first scalar with that text.
func find(node *yaml.Node, text string) *yaml.Node {
	if node.Kind == yaml.ScalarNode && node.Value == text {
		return node
	}
	for _, child := range node.Content {
		if found := find(child, text); found != nil {
			return found
		}
	}
	return nil
}

var (
	yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)
	// anchorError matches the error that is found only after the parse.
	anchorError = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
)

// maxSearch bounds the documents, in bytes, in which the line of a syntax error is looked for: it takes some twenty parses.
const maxSearch = 512 << 10

// syntaxError is an error of the YAML library with the line in the file.
func syntaxError(file string, c chunk, err error) error {
	text, line := firstLine(err.Error()), 1
	if matches := yamlError.FindStringSubmatch(text); matches != nil {
		text = matches[2]
		line, _ = strconv.Atoi(matches[1])
	}
	if len(c.text) <= maxSearch {
		line = problemLine(c.text, err)
	}
	if anchor := anchorError.FindStringSubmatch(text); anchor != nil {
		text = "unknown anchor (an unquoted * begins the name of one)" // the name may be a password that begins with *
		line = lineAt(c.text, max(0, bytes.Index(c.text, []byte("*"+anchor[1]))))
	}
	switch problem := lineOf(c.text, line); {
	case indentedWithTab(problem):
		text += " (the line is indented with a tab; YAML wants spaces)"
	case bytes.Contains(problem, []byte(referenceMark)):
		text += " (within braces, quote what has a ${ in it)"
	}
	return located(file, c.line+max(line, 1)-1, "invalid YAML: %s", text)
}

// problemLine is the line, from 1, at which text becomes invalid. The library reports sometimes that line, sometimes where
// the mapping begins that it is in, and counts from 0 or 1; but it reads no further than the problem, so that the text up
// to that line gives the same error and a shorter one does not.
func problemLine(text []byte, err error) int {
	var ends []int
	for line := range bytes.Lines(text) {
		ends = append(ends, len(line))
	}
	for i := 1; i < len(ends); i++ {
		ends[i] += ends[i-1]
	}
	line := sort.Search(len(ends), func(i int) bool {
		again := errorIn(text[:ends[i]])
		return again != nil && again.Error() == err.Error()
	})
	return min(line+1, len(ends))
}

// errorIn is the first error in text.
func errorIn(text []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var node yaml.Node
		if err := decoder.Decode(&node); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// lineOf is the line of that number, from 1.
func lineOf(text []byte, number int) []byte {
	for line := range bytes.Lines(text) {
		if number--; number == 0 {
			return line
		}
	}
	return nil
}

// indentedWithTab says whether a line begins with white space that has a tab.
func indentedWithTab(line []byte) bool {
	return bytes.ContainsRune(line[:len(line)-len(bytes.TrimLeft(line, " \t"))], '\t')
}

func firstLine(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	return text
}

// noLines is the offset of nodes that come from no file.
const noLines = -1

// conversion turns the nodes of one document into values.
type conversion struct {
	parser
	file string
	// offset is the number of lines before the document, or noLines.
	offset int
	// open holds the nodes whose conversion has begun and not ended; an alias to one of them would never end.
	open map[*yaml.Node]bool
}

// line is the line of a node in the file, 0 if it comes from no file.
func (c conversion) line(node *yaml.Node) int {
	if c.offset == noLines {
		return 0
	}
	return c.offset + node.Line
}

func (c conversion) fail(node *yaml.Node, format string, args ...any) error {
	return located(c.file, c.line(node), format, args...)
}

// value is what node says. Its cost counts each time an alias repeats it.
func (c conversion) value(node *yaml.Node, depth int) (any, error) {
	if depth > maxNesting {
		return nil, c.fail(node, "values are nested more than %d deep", maxNesting)
	}
	if c.open[node] {
		return nil, c.fail(node, "anchor %q contains itself", node.Anchor)
	}
	if err := c.objects.spend(nodeCost + len(node.Value)); err != nil {
		return nil, c.fail(node, "%w", err)
	}
	switch node.Kind {
	case yaml.AliasNode:
		return c.value(node.Alias, depth+1)
	case yaml.ScalarNode:
		return c.scalar(node)
	case yaml.SequenceNode:
		return c.sequence(node, depth)
	case yaml.MappingNode:
		return c.mapping(node, depth)
	default:
		return nil, c.fail(node, "unexpected YAML node")
	}
}

func (c conversion) sequence(node *yaml.Node, depth int) (any, error) {
	if tag := node.ShortTag(); tag != "!!seq" {
		return nil, c.fail(node, "tag %s is not supported", tag)
	}
	c.open[node] = true
	defer delete(c.open, node)
	items := make([]any, 0, len(node.Content))
	for _, child := range node.Content {
		item, err := c.value(child, depth+1)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

func (c conversion) mapping(node *yaml.Node, depth int) (any, error) {
	if tag := node.ShortTag(); tag != "!!map" {
		return nil, c.fail(node, "tag %s is not supported", tag)
	}
	c.open[node] = true
	defer delete(c.open, node)
	fields := make(map[string]any, len(node.Content)/2)
	lines := make(map[string]int, len(node.Content)/2)
	var merged *yaml.Node
	for i := 0; i+1 < len(node.Content); i += 2 {
		keyNode, valueNode := node.Content[i], node.Content[i+1]
		if keyNode.ShortTag() == "!!merge" {
			if merged != nil {
				return nil, c.fail(keyNode, "key \"<<\" appears twice, first at line %d", c.offset+lines["<<"])
			}
			merged, lines["<<"] = valueNode, keyNode.Line
			continue
		}
		key, err := c.key(keyNode)
		if err != nil {
			return nil, err
		}
		if first, twice := lines[key]; twice {
			return nil, c.fail(keyNode, "key %q appears twice, first at line %d", key, c.offset+first)
		}
		lines[key] = keyNode.Line
		if fields[key], err = c.value(valueNode, depth+1); err != nil {
			return nil, err
		}
	}
	if merged != nil {
		return fields, c.merge(fields, merged, depth)
	}
	return fields, nil
}

// merge adds to fields what the value of a merge key has and fields has not: of several mappings, the first wins.
func (c conversion) merge(fields map[string]any, node *yaml.Node, depth int) error {
	value, err := c.value(node, depth+1)
	if err != nil {
		return err
	}
	sources, isList := value.([]any)
	if !isList {
		sources = []any{value}
	}
	for _, source := range sources {
		mapping, ok := source.(map[string]any)
		if !ok {
			return c.fail(node, "the value of \"<<\" is neither a mapping nor a list of mappings")
		}
		for key, value := range mapping {
			if _, has := fields[key]; !has {
				fields[key] = value
			}
		}
	}
	return nil
}

// key is the text of a key. Numbers and booleans are keys as they are written.
func (c conversion) key(node *yaml.Node) (string, error) {
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Kind != yaml.ScalarNode {
		return "", c.fail(node, "a key is not a scalar")
	}
	switch tag := node.ShortTag(); tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!timestamp":
	case "!!null":
		return "", c.fail(node, "a key is null")
	default:
		return "", c.fail(node, "tag %s is not supported in a key", tag)
	}
	return node.Value, c.objects.spend(nodeCost + len(node.Value))
}

// scalar is the value of a scalar by the rules of YAML 1.2, as kustomize has it: yes, no, on and off are strings.
func (c conversion) scalar(node *yaml.Node) (any, error) {
	switch tag := node.ShortTag(); tag {
	case "!!str", "!!timestamp": // JSON has no dates; what is written is what the API server gets
		return node.Value, nil
	case "!!null":
		return nil, nil
	case "!!bool":
		return c.boolean(node)
	case "!!int":
		return c.integer(node)
	case "!!float":
		return c.float(node)
	default:
		return nil, c.fail(node, "tag %s is not supported", tag)
	}
}

func (c conversion) boolean(node *yaml.Node) (any, error) {
	switch strings.ToLower(node.Value) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return nil, c.fail(node, "this is not a boolean")
	}
}

func (c conversion) integer(node *yaml.Node) (any, error) {
	number, err := strconv.ParseInt(strings.ReplaceAll(node.Value, "_", ""), 0, 64)
	if errors.Is(err, strconv.ErrRange) {
		return nil, c.fail(node, "the integer does not fit into 64 bits; quote it if it is a text")
	}
	if err != nil {
		return nil, c.fail(node, "this is not an integer")
	}
	return number, nil
}

func (c conversion) float(node *yaml.Node) (any, error) {
	if !strings.ContainsAny(node.Value, ".eE") {
		return c.wholeNumber(node)
	}
	number, err := strconv.ParseFloat(strings.ReplaceAll(node.Value, "_", ""), 64)
	if err != nil || math.IsInf(number, 0) || math.IsNaN(number) {
		return nil, c.fail(node, "this is not a number that JSON can express")
	}
	return number, nil
}

// wholeNumber is what the YAML library takes for a float because it is no integer to it: 08, or more than 64 bits.
func (c conversion) wholeNumber(node *yaml.Node) (any, error) {
	number, err := strconv.ParseInt(strings.ReplaceAll(node.Value, "_", ""), 10, 64)
	if err != nil {
		return nil, c.fail(node, "the integer does not fit into 64 bits; quote it if it is a text")
	}
	return number, nil
}

// shorten keeps a long text from filling a message.
func shorten(text string) string {
	const limit = 64
	return failure.Shorten(text, limit)
}
