package files

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	yamlv3 "go.yaml.in/yaml/v3"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// Document is one object in a file.
type Document struct {
	// Path is the file as it was named, or as it was found in a named directory; "-" is standard input.
	Path string
	// Line is where the object begins, counted from 1.
	Line int
	// Fields are the object.
	Fields map[string]any

	node *yamlv3.Node
	// lines are those of the whole file, each with its end.
	lines []string
}

// Kind is the kind of the object, empty if it has none.
func (d Document) Kind() string { return d.text("kind") }

// APIVersion is the apiVersion of the object, empty if it has none.
func (d Document) APIVersion() string { return d.text("apiVersion") }

func (d Document) text(field string) string {
	value, _ := d.Fields[field].(string)
	return value
}

// Problem is something that is wrong with a file.
type Problem struct {
	// Path is the file. Line and Column are where in it, counted from 1; zero if that is not known.
	Path         string
	Line, Column int
	// Message says what is wrong, on one line.
	Message string
}

// Error is "path:line:column: message", as editors and CI systems recognise it.
func (p Problem) Error() string {
	at := p.Path
	if p.Line > 0 {
		at += ":" + strconv.Itoa(p.Line)
		if p.Column > 0 {
			at += ":" + strconv.Itoa(p.Column)
		}
	}
	return at + ": " + p.Message
}

// compare orders problems by where they are.
func (p Problem) compare(other Problem) int {
	return cmp.Or(cmp.Compare(p.Path, other.Path), cmp.Compare(p.Line, other.Line), cmp.Compare(p.Column, other.Column),
		cmp.Compare(p.Message, other.Message))
}

// Parse is the documents in the text of the file path, the items of lists in place of the lists. The error is Problems.
func Parse(path, text string) ([]Document, error) {
	documents, problems := parse(path, text)
	return documents, problems.orNil()
}

// parse splits the text of the file path into its documents. Documents without content are left out.
func parse(path, text string) ([]Document, Problems) {
	if !utf8.ValidString(text) {
		return nil, Problems{{Path: path, Line: 1 + strings.Count(validPrefix(text), "\n"), Message: "is not UTF-8"}}
	}
	file := strings.SplitAfter(text, "\n")
	var documents []Document
	var problems Problems
	for start := 0; start < len(file); {
		end := start + 1
		for end < len(file) && !isSeparator(file[end]) {
			end++
		}
		found, err := parseDocument(Document{Path: path, lines: file}, start, end)
		if err != nil {
			problems = append(problems, located(path, start, err)...)
		}
		documents = append(documents, found...)
		start = end
	}
	return documents, problems
}

// validPrefix is text up to the first byte that is not UTF-8.
func validPrefix(text string) string {
	for i, r := range text {
		if r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)) {
			return text[:i]
		}
	}
	return text
}

// isSeparator tells whether a document begins with the line.
func isSeparator(line string) bool {
	rest, ok := strings.CutPrefix(line, "---")
	return ok && (rest == "" || strings.ContainsAny(rest[:1], " \t\r\n"))
}

// parseDocument parses the lines of a file from start to end: none, one, or the items of a list.
func parseDocument(in Document, start, end int) ([]Document, error) {
	text := []byte(strings.Join(in.lines[start:end], ""))
	var root yamlv3.Node
	if err := yamlv3.Unmarshal(text, &root); err != nil {
		return nil, err
	}
	if len(root.Content) == 0 || root.Content[0].Tag == "!!null" {
		return nil, nil
	}
	converted, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	in.node = root.Content[0]
	if in.node.Kind != yamlv3.MappingNode {
		return nil, fmt.Errorf("line %d: is not an object", in.node.Line)
	}
	if err := utiljson.Unmarshal(converted, &in.Fields); err != nil {
		return nil, err
	}
	shift(in.node, start)
	in.Line = in.node.Line
	return in.items()
}

// shift moves a node and what is in it down by some lines.
func shift(node *yamlv3.Node, lines int) {
	node.Line += lines
	for _, child := range node.Content {
		shift(child, lines)
	}
}

// items are the objects that d lists, or d itself if it is no list.
func (d Document) items() ([]Document, error) {
	list, isList := d.Fields["items"].([]any)
	if !isList || !strings.HasSuffix(d.Kind(), "List") {
		return []Document{d}, nil
	}
	_, nodes := d.find("items")
	if nodes.Kind == yamlv3.AliasNode {
		nodes = nodes.Alias
	}
	all := make([]Document, 0, len(list))
	for i, item := range list {
		one := d
		if nodes.Kind == yamlv3.SequenceNode && len(nodes.Content) == len(list) { // and not merged from elsewhere
			one.node = nodes.Content[i]
		}
		one.Line = one.node.Line
		var isObject bool
		if one.Fields, isObject = item.(map[string]any); !isObject {
			return nil, fmt.Errorf("line %d: is not an object", one.Line)
		}
		inner, err := one.items()
		if err != nil {
			return nil, err
		}
		all = append(all, inner...)
	}
	return all, nil
}

var lineOfError = regexp.MustCompile(`line (\d+): ([^\n]+)`)

// located are the problems that an error about the text after some lines of a file stands for: errors of a YAML parser name
// the line in their text alone. Without one, the problem is where the text begins.
func located(path string, after int, err error) Problems {
	const message = "is not valid YAML: "
	var problems Problems
	for _, match := range lineOfError.FindAllStringSubmatch(err.Error(), -1) {
		line, failed := strconv.Atoi(match[1])
		if failed == nil {
			problems = append(problems, Problem{Path: path, Line: after + line, Message: message + match[2]})
		}
	}
	if len(problems) > 0 {
		return problems
	}
	text := strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), "yaml: ")
	return Problems{{Path: path, Line: after + 1, Message: message + text}}
}

// Problems is everything that is wrong with some files.
type Problems []Problem

// Error has a problem in each line.
func (p Problems) Error() string {
	lines := make([]string, 0, len(p))
	for _, problem := range p {
		lines = append(lines, problem.Error())
	}
	return strings.Join(lines, "\n")
}

// Sort orders p by where the problems are, and leaves out what is repeated.
func (p Problems) Sort() Problems {
	slices.SortFunc(p, Problem.compare)
	return slices.Compact(p)
}

// orNil keeps an empty list from becoming an error that is not nil.
func (p Problems) orNil() error {
	if len(p) == 0 {
		return nil
	}
	return p
}
