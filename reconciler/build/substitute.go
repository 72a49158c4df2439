package build

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Variable is what a name stands for in the manifests of a stage.
type Variable struct {
	Value string
	// Secret says that the value is one of a Secret: no message tells it, and it cannot be part of what messages name.
	Secret bool
}

// Variables are substituted in what a stage renders, by name. Nil leaves every text as it is; an empty map refuses each
// reference that has no default.
type Variables map[string]Variable

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// IsVariableName says whether manifests can refer to a variable of that name.
func IsVariableName(name string) bool { return variableName.MatchString(name) }

const (
	referenceMark = "${"
	// literalMark stands for a referenceMark that refers to nothing.
	literalMark = "$" + referenceMark
	// defaultMark separates the name of a variable from its default.
	defaultMark = ":="
)

// expansion replaces the references in one text. Its grammar is deliberately small: ${name}, ${name:=default} in which the
// default is text, and $${ for ${. What it does not know is a problem and never left as it is: a release in which half of
// the references are replaced is worse than none. What comes in is not read again.
type expansion struct {
	variables Variables
	budget    *budget
	// naming says that messages show the text as it will be: it is part of a name.
	naming bool
	// quoting says that messages may show the text as it is in the manifest.
	quoting bool

	missing  []string
	problems []string
}

// expand is the text with its references replaced, as far as there are no problems. The error says that the budget is spent.
func (e *expansion) expand(text string) (string, error) {
	if !strings.Contains(text, referenceMark) {
		return text, nil
	}
	var out strings.Builder
	for {
		begin := strings.Index(text, referenceMark)
		switch {
		case begin < 0:
			out.WriteString(text)
			return out.String(), nil
		case begin > 0 && text[begin-1] == '$':
			out.WriteString(text[:begin-1] + referenceMark)
			text = text[begin+len(referenceMark):]
			continue
		}
		out.WriteString(text[:begin])
		length := strings.IndexByte(text[begin:], '}') + 1
		if length == 0 {
			e.refuse(text[begin:])
			return out.String(), nil
		}
		value := e.value(text[begin : begin+length])
		if err := e.budget.spend(len(value)); err != nil {
			return "", err
		}
		out.WriteString(value)
		text = text[begin+length:]
	}
}

// value is what a reference, which begins with the mark and ends with a brace, stands for.
func (e *expansion) value(reference string) string {
	content := reference[len(referenceMark) : len(reference)-1]
	name, fallback, hasDefault := strings.Cut(content, defaultMark)
	if !IsVariableName(name) || strings.Contains(fallback, referenceMark) {
		e.refuse(reference)
		return ""
	}
	variable, known := e.variables[name]
	switch {
	case variable.Value == "" && hasDefault:
		return fallback
	case !known:
		e.missing = append(e.missing, name)
	case variable.Secret && e.naming:
		e.problems = append(e.problems, fmt.Sprintf(
			"%s is the value of a Secret and would be told in messages as part of a name; take it from a ConfigMap", shorten(name)))
	case !utf8.ValidString(variable.Value):
		e.problems = append(e.problems, fmt.Sprintf("the value of %s is not UTF-8 text", shorten(name)))
	}
	return variable.Value
}

// refuse says that something which begins like a reference is none.
func (e *expansion) refuse(text string) {
	const rule = "is neither ${name} nor ${name:=default}, nor $${ for a literal ${"
	if !e.quoting {
		e.problems = append(e.problems, "something that begins with ${ "+rule)
		return
	}
	e.problems = append(e.problems, fmt.Sprintf("%q %s", shorten(text), rule))
}
