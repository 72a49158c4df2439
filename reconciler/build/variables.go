package build

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

// maxProblems is how many problems of a substitution a message lists before it counts.
const maxProblems = 20

// substitution replaces references in the objects of a stage: in every text and key, wherever it is. A text stays a text,
// whatever it becomes, and all that is not a text stays what it is.
type substitution struct {
	variables Variables
	budget    *budget
	problems  []string

	// object is the current object as messages name it; path leads to the current field.
	object   string
	isSecret bool
	path     []string
}

// substitute replaces the references in the objects that have not opted out. It reports the problems of all objects at
// once.
func (b *builder) substitute(objects []Object, variables Variables) error {
	if variables == nil {
		return nil
	}
	s := substitution{variables: variables, budget: objectBudget()}
	if err := s.budget.spend(int(sizeOf(objects))); err != nil {
		return err
	}
	for _, object := range objects {
		if object.GetAnnotations()[v1.AnnotationSubstitute] == v1.SubstituteDisabled || !refers(object.Object) {
			continue
		}
		s.object, s.isSecret = fmt.Sprintf("%s (%s)", object, object.Origin), object.GetKind() == "Secret"
		if err := s.replaceFields(object.Object); err != nil {
			return fmt.Errorf("postBuild: %s: %w", s.object, err)
		}
	}
	if err := s.problem(); err != nil {
		return err
	}
	return checkAll(objects)
}

// refers says whether a text or key in value has something to replace.
func refers(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			if strings.Contains(key, referenceMark) || refers(field) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(value, refers)
	case string:
		return strings.Contains(value, referenceMark)
	}
	return false
}

// replace is value with its references replaced; maps and lists are changed where they are.
func (s *substitution) replace(value any) (any, error) {
	switch value := value.(type) {
	case map[string]any:
		return value, s.replaceFields(value)
	case []any:
		return value, s.replaceItems(value)
	case string:
		return s.text(value, s.isIdentity())
	default:
		return value, nil
	}
}

func (s *substitution) replaceItems(items []any) error {
	for i, item := range items {
		s.path = append(s.path, fmt.Sprintf("[%d]", i))
		replaced, err := s.replace(item)
		if err != nil {
			return err
		}
		items[i] = replaced
		s.path = s.path[:len(s.path)-1]
	}
	return nil
}

// replaceFields replaces references in the values of fields, and in the keys. Keys are in messages as part of paths.
func (s *substitution) replaceFields(fields map[string]any) error {
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		s.path = append(s.path, step(key))
		replaced, err := s.replace(fields[key])
		if err != nil {
			return err
		}
		replacedKey, err := s.text(key, true)
		if err != nil {
			return err
		}
		if replacedKey != key {
			delete(fields, key)
			if _, twice := fields[replacedKey]; twice {
				s.report("two keys become the same")
			}
		}
		fields[replacedKey] = replaced
		s.path = s.path[:len(s.path)-1]
	}
	return nil
}

// step is a key as part of a path.
func step(key string) string {
	if strings.ContainsAny(key, `./[]"${} `) {
		return fmt.Sprintf("[%q]", shorten(key))
	}
	return "." + shorten(key)
}

// isIdentity says whether the current field is part of how messages name the object.
func (s *substitution) isIdentity() bool {
	switch strings.Join(s.path, "") {
	case ".apiVersion", ".kind", ".metadata.name", ".metadata.namespace":
		return true
	}
	return false
}

// text is a text of the current field with its references replaced. What a Secret's manifest says is not quoted: it may be a
// value that only looks like a reference.
func (s *substitution) text(text string, naming bool) (string, error) {
	e := expansion{variables: s.variables, budget: s.budget, naming: naming, quoting: !s.isSecret}
	replaced, err := e.expand(text)
	if err != nil {
		return "", err
	}
	if len(e.missing) > 0 {
		slices.Sort(e.missing)
		s.report("no value for " + shortenedList(slices.Compact(e.missing)))
	}
	slices.Sort(e.problems)
	for _, problem := range slices.Compact(e.problems) {
		s.report(problem)
	}
	return replaced, nil
}

// shortenedList is a list of names, a long one in part.
func shortenedList(names []string) string {
	shown := make([]string, 0, maxProblems)
	for _, name := range names[:min(len(names), maxProblems)] {
		shown = append(shown, shorten(name))
	}
	return strings.Join(failure.AndMore(shown, len(names)-maxProblems), ", ")
}

// report notes a problem of the current field.
func (s *substitution) report(problem string) {
	path := strings.TrimPrefix(strings.Join(s.path, ""), ".")
	s.problems = append(s.problems, fmt.Sprintf("%s: %s: %s", s.object, path, problem))
}

// problem is all problems as one error.
func (s *substitution) problem() error {
	if len(s.problems) == 0 {
		return nil
	}
	listed := s.problems[:min(len(s.problems), maxProblems)]
	text := strings.Join(failure.AndMore(listed, len(s.problems)-maxProblems), "; ")
	return errors.New("postBuild: " + text + "; set what is missing in postBuild, write $${ for a literal ${, or annotate an " +
		"object that is to stay as it is with " + v1.AnnotationSubstitute + ": " + v1.SubstituteDisabled)
}
