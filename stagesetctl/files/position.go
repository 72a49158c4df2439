package files

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	yamlv3 "go.yaml.in/yaml/v3"
)

// At is a Problem at the field path of d, such as spec.validations[sources].message or spec.tests[0].expect. Where there is
// no such field, it is at the innermost field around it that there is.
func (d Document) At(path, message string) Problem {
	key, _ := d.find(path)
	return Problem{Path: d.Path, Line: d.from.start + key.Line, Column: key.Column, Message: message}
}

// Within is a Problem in the text that is the value of the field path: at line and column of the value, counted from 1, in
// characters. It is found wherever YAML puts that character: in a block, folded or not, in quotes, or plain.
func (d Document) Within(path string, line, column int, message string) Problem {
	key, value := d.find(path)
	problem := Problem{Path: d.Path, Line: d.from.start + key.Line, Column: key.Column, Message: message}
	if value.Kind == yamlv3.ScalarNode {
		problem.Line, problem.Column = d.within(value, line, column)
	}
	return problem
}

// find is the key and the value of the innermost field on the way to path that there is.
func (d Document) find(path string) (key, value *yamlv3.Node) {
	key = d.node()
	value = key
	for _, name := range split(path) {
		nextKey, next := child(value, name)
		if next == nil {
			break
		}
		key, value = nextKey, next
	}
	return key, value
}

// child is the member of parent called name: the field of an object, the item of a list with that name, key or index.
func child(parent *yamlv3.Node, name string) (key, value *yamlv3.Node) {
	switch parent.Kind {
	case yamlv3.MappingNode:
		for i := 0; i+1 < len(parent.Content); i += 2 {
			if parent.Content[i].Value == name {
				return parent.Content[i], parent.Content[i+1]
			}
		}
	case yamlv3.SequenceNode:
		for _, item := range parent.Content {
			for _, field := range []string{"name", "key"} {
				if _, found := child(item, field); found != nil && found.Value == name {
					return item, item
				}
			}
		}
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(parent.Content) {
			return parent.Content[i], parent.Content[i]
		}
	case yamlv3.AliasNode:
		return child(parent.Alias, name)
	}
	return nil, nil
}

// split are the names of a path: what is in brackets is one, whatever it contains.
func split(path string) []string {
	var names []string
	for path = strings.TrimLeft(path, "."); path != ""; path = strings.TrimLeft(path, ".") {
		if inside, ok := strings.CutPrefix(path, "["); ok {
			name, rest, _ := strings.Cut(inside, "]")
			names, path = append(names, strings.Trim(name, `'"`)), rest
			continue
		}
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			end = len(path)
		}
		names, path = append(names, path[:end]), path[end:]
	}
	return names
}

// within is where in the file the character at line and column of a scalar's value is. YAML changes nothing but white space
// and what is quoted, so it is found by counting the other characters before it.
func (d Document) within(scalar *yamlv3.Node, line, column int) (int, int) {
	remaining := visibleBefore(scalar.Value, line, column)
	first := d.from.start + scalar.Line
	s := scanner{lines: d.from.lines, line: first - 1, column: scalar.Column - 1, style: scalar.Style}
	s.skipProperties()
	switch scalar.Style &^ yamlv3.TaggedStyle {
	case yamlv3.LiteralStyle, yamlv3.FoldedStyle:
		s.line, s.column = s.line+1, 0
	case yamlv3.DoubleQuotedStyle, yamlv3.SingleQuotedStyle:
		s.column++
	}
	for {
		r, ok := s.peek()
		if !ok {
			return first, scalar.Column
		}
		if !unicode.IsSpace(r.value) {
			if remaining == 0 {
				return s.line + 1, s.column + 1
			}
			remaining--
		}
		s.column += r.width
	}
}

// visibleBefore counts the characters of value that are not white space, before line and column.
func visibleBefore(value string, line, column int) int {
	lines := strings.Split(value, "\n")
	count := 0
	for i, text := range lines {
		if i+1 > line {
			break
		}
		at := 0
		for _, r := range text {
			if at++; i+1 == line && at >= column {
				break
			}
			if !unicode.IsSpace(r) {
				count++
			}
		}
	}
	return count
}

// scanner reads the characters of a scalar as they are written. Its line and column count from 0, in characters.
type scanner struct {
	lines        []string
	line, column int
	style        yamlv3.Style
}

// character is one character of a value, and how many it takes to write it.
type character struct {
	value rune
	width int
}

// skipProperties goes from the tag or the anchor of a scalar to the scalar.
func (s *scanner) skipProperties() {
	for {
		rest := []rune(s.lines[s.line])[s.column:]
		end := slices.IndexFunc(rest, unicode.IsSpace)
		if end < 0 || rest[0] != '!' && rest[0] != '&' {
			return
		}
		for s.column += end; s.column < len([]rune(s.lines[s.line])); s.column++ {
			if !unicode.IsSpace([]rune(s.lines[s.line])[s.column]) {
				break
			}
		}
	}
}

// peek is the character at s, or the next line's first. It is false behind the end of the file.
func (s *scanner) peek() (character, bool) {
	for s.line < len(s.lines) {
		rest := []rune(s.lines[s.line])
		if s.column < len(rest) {
			return s.decode(rest[s.column:]), true
		}
		s.line, s.column = s.line+1, 0
	}
	return character{}, false
}

func (s *scanner) decode(rest []rune) character {
	switch {
	case s.style&yamlv3.SingleQuotedStyle != 0 && len(rest) > 1 && rest[0] == '\'' && rest[1] == '\'':
		return character{'\'', 2}
	case s.style&yamlv3.DoubleQuotedStyle != 0 && rest[0] == '\\':
		return escaped(rest)
	default:
		return character{rest[0], 1}
	}
}

// escaped is the character that an escape of a double-quoted scalar stands for, as far as it matters here: whether it is
// white space, and how long it is.
func escaped(rest []rune) character {
	if len(rest) == 1 {
		return character{' ', 1} // a line break that is not part of the value
	}
	digits := map[rune]int{'x': 2, 'u': 4, 'U': 8}[rest[1]]
	if digits > 0 && len(rest) >= 2+digits {
		code, err := strconv.ParseUint(string(rest[2:2+digits]), 16, 32)
		if err != nil || code > unicode.MaxRune {
			return character{utf8.RuneError, 2 + digits}
		}
		return character{rune(code), 2 + digits}
	}
	if strings.ContainsRune("nrtvf NL_P\t", rest[1]) {
		return character{' ', 2}
	}
	return character{rest[1], 2}
}
