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

// Document is one object in a file. It is not safe for concurrent use.
type Document struct {
	// Path is the file as it was named, or as it was found in a named directory; "-" is standard input.
	Path string
	// Line is where the object begins, counted from 1.
	Line int
	// Fields are the object.
	Fields map[string]any

	// from is what it was parsed from, and item where in nested lists it is.
	from *part
	item []int
}

// part is the part of a file that a document is in.
type part struct {
	// lines are those of the whole file, each with its end; the part is from start to end.
	lines      []string
	start, end int
	// node is the object in it; nil until somebody asks where its fields are, which of many documents nobody does.
	node *yamlv3.Node
}

func (p *part) String() string { return strings.Join(p.lines[p.start:p.end], "") }

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
		found, err := parseDocument(Document{Path: path, from: &part{lines: file, start: start, end: end}})
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

// parseDocument parses the text of a document: it is none, one, or the items of a list.
func parseDocument(in Document) ([]Document, error) {
	content := []byte(in.from.String())
	var root yamlv3.Node
	if err := yamlv3.Unmarshal(content, &root); err != nil {
		return nil, err
	}
	if len(root.Content) == 0 || root.Content[0].Tag == "!!null" {
		return nil, nil
	}
	converted, err := yaml.YAMLToJSONStrict(content)
	if err != nil {
		return nil, err
	}
	if root.Content[0].Kind != yamlv3.MappingNode {
		return nil, fmt.Errorf("line %d: is not an object", root.Content[0].Line)
	}
	if err := utiljson.Unmarshal(converted, &in.Fields); err != nil {
		return nil, err
	}
	return in.items(root.Content[0])
}

// items are the objects that d, whose node is given, lists, or d itself if it is no list.
func (d Document) items(node *yamlv3.Node) ([]Document, error) {
	d.Line = d.from.start + node.Line
	list, isList := d.Fields["items"].([]any)
	if !isList || !strings.HasSuffix(d.Kind(), "List") {
		return []Document{d}, nil
	}
	all := make([]Document, 0, len(list))
	for i, item := range list {
		one := d
		one.item = append(slices.Clip(d.item), i)
		of := itemNode(node, i)
		var isObject bool
		if one.Fields, isObject = item.(map[string]any); !isObject {
			return nil, fmt.Errorf("line %d: is not an object", of.Line)
		}
		inner, err := one.items(of)
		if err != nil {
			return nil, err
		}
		all = append(all, inner...)
	}
	return all, nil
}

// itemNode is the node of item i of a list; the list's own, if it is merged from elsewhere.
func itemNode(list *yamlv3.Node, i int) *yamlv3.Node {
	_, items := child(list, "items")
	if items != nil && items.Kind == yamlv3.AliasNode {
		items = items.Alias
	}
	if items == nil || items.Kind != yamlv3.SequenceNode || i >= len(items.Content) {
		return list
	}
	return items.Content[i]
}

// node is where d is in its text; the lines of nodes are counted from where the text begins.
func (d Document) node() *yamlv3.Node {
	if d.from.node == nil {
		d.from.node = &yamlv3.Node{Line: 1, Column: 1}
		var root yamlv3.Node
		if err := yamlv3.Unmarshal([]byte(d.from.String()), &root); err == nil && len(root.Content) > 0 { // as before
			d.from.node = root.Content[0]
		}
	}
	node := d.from.node
	for _, i := range d.item {
		node = itemNode(node, i)
	}
	return node
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
