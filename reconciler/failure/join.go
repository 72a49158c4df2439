package failure

import (
	"errors"
	"slices"
	"strings"
)

// Join is one failure for several, so that all problems are reported at once: the reason and stage of the first, the
// texts of all in order, each once, and the kind that can expect most of a retry. A failure that waits beside one that has
// to be mended is Transient: nobody may tell when the latter is. It is nil when all errs are nil.
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
		if joined.Kind != failed.Kind {
			joined.Kind, joined.RetryAfter = Transient, 0
		}
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
