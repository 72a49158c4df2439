package files

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

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
	// lines are those of the whole file.
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

// separator is the first line of a document that is not the first.
const separator = "---"

// Parse is the documents in the text of the file path. The error is Problems.
func Parse(path, text string) ([]Document, error) {
	documents, problems := parse(path, text)
	return documents, problems.orNil()
}

// parse splits the text of the file path into its documents. Documents without content are left out.
func parse(path, text string) ([]Document, Problems) {
	lines := strings.Split(text, "\n")
	var documents []Document
	var problems Problems
	for start := 0; start < len(lines); {
		end := start + 1
		for end < len(lines) && !isSeparator(lines[end]) {
			end++
		}
		document, err := parseDocument(lines, start, end)
		switch {
		case err != nil:
			problems = append(problems, located(path, err)...)
		case document.Fields != nil:
			document.Path = path
			documents = append(documents, document)
		}
		start = end
	}
	return documents, problems
}

func isSeparator(line string) bool {
	rest, ok := strings.CutPrefix(line, separator)
	return ok && strings.TrimLeft(rest, " \t\r") != rest || rest == "" && ok
}

// parseDocument parses the lines from start to end, keeping the numbers of lines.
func parseDocument(lines []string, start, end int) (Document, error) {
	own := make([]string, end)
	copy(own[start:], lines[start:end])
	if isSeparator(own[start]) {
		own[start] = strings.TrimPrefix(own[start], separator)
	}
	text := []byte(strings.Join(own, "\n"))
	var root yamlv3.Node
	if err := yamlv3.Unmarshal(text, &root); err != nil {
		return Document{}, err
	}
	if len(root.Content) == 0 || root.Content[0].Tag == "!!null" {
		return Document{}, nil
	}
	document := Document{Line: root.Content[0].Line, node: root.Content[0], lines: lines}
	converted, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return Document{}, err
	}
	if document.node.Kind != yamlv3.MappingNode {
		return Document{}, fmt.Errorf("line %d: is not an object", document.Line)
	}
	return document, utiljson.Unmarshal(converted, &document.Fields)
}

var lineOfError = regexp.MustCompile(`line (\d+): ([^\n]+)`)

// located are the problems that an error of a YAML parser stands for: they name the line in their text alone.
func located(path string, err error) Problems {
	var problems Problems
	for _, match := range lineOfError.FindAllStringSubmatch(err.Error(), -1) {
		line, failed := strconv.Atoi(match[1])
		if failed == nil {
			problems = append(problems, Problem{Path: path, Line: line, Message: "is not valid YAML: " + match[2]})
		}
	}
	if len(problems) > 0 {
		return problems
	}
	return Problems{{Path: path, Message: "is not valid YAML: " + strings.Join(strings.Fields(err.Error()), " ")}}
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
