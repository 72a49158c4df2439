package failure

import (
	"errors"
	"slices"
	"strings"
)

// Join is one failure for several, so that all problems are reported at once: the reason and stage of the first, the
// texts of all in order, each once, and the kind that can expect most of a retry. It is nil when all errs are nil.
func Join(errs ...error) error {
	var joined *Error
	var texts []string
	for _, err := range errs {
		if err == nil {
			continue
		}
		failed := From(err)
		if joined == nil {
			first := *failed
			joined = &first
		}
		joined.Kind = min(joined.Kind, failed.Kind)
		if text := failed.Error(); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	switch {
	case joined == nil:
		return nil
	case len(texts) > 1:
		joined.Err = errors.New(strings.Join(texts, "; "))
	}
	return joined
}
