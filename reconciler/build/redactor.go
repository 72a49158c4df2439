package build

import (
	"maps"
	"slices"
	"strings"

	"github.com/stageset/stageset/reconciler/failure"
)

const (
	// redacted stands for what is left out of a message.
	redacted = "[…]"
	// ellipsis is where a text was cut off.
	ellipsis = "…"
	// withheld is all that is told when there are too many values to look for.
	withheld = "the message is withheld: it may hold any of too many values of Secrets"
	// maxText is how much of a text is looked at and told, in bytes: more than a status or an event takes.
	maxText = 16 << 10
)

// Redactor takes values of Secrets out of texts. The zero value takes out none. It is safe for concurrent use.
type Redactor struct {
	// forms are in order, each once. within has for each the longest other one that it begins with; -1 if there is none.
	forms  []string
	within []int
}

// Redactor takes out of texts what is noted by now.
func (s Secrets) Redactor() Redactor {
	r := Redactor{forms: slices.Sorted(maps.Keys(s.forms)), within: make([]int, len(s.forms))}
	for i, form := range r.forms {
		before := i - 1
		for before >= 0 && !strings.HasPrefix(form, r.forms[before]) {
			before = r.within[before]
		}
		r.within[i] = before
	}
	return r
}

// Redact is text without the values, also where one is cut off before an ellipsis. A text of more than 16 KiB is cut off. It
// goes through the text once, and never looks into what it puts there, nor into what another Redactor has: how long a text is
// and what is looked for in it may both be meant to keep it busy.
func (r Redactor) Redact(text string) string {
	switch {
	case len(r.forms) == 0:
		return text
	case len(r.forms) > maxForms:
		return withheld
	}
	text = failure.Cut(text, maxText)
	var told strings.Builder
	for at := 0; at < len(text); {
		end := r.hidden(text, at)
		switch {
		case strings.HasPrefix(text[at:], redacted) && end <= at+len(redacted):
			told.WriteString(redacted)
			at += len(redacted)
		case end == at:
			told.WriteByte(text[at])
			at++
		case strings.HasPrefix(text[end:], ellipsis):
			at = end
		default:
			told.WriteString(redacted)
			at = end
		}
	}
	return told.String()
}

// hidden is where what has to be left out from a place on ends, with all that overlaps; the place itself if it may be told.
func (r Redactor) hidden(text string, at int) int {
	end := r.found(text, at)
	for next := at + 1; next < end; next++ {
		end = max(end, r.found(text, next))
	}
	return end
}

// found is where the longest form ends that begins at a place of the text, or the text that is cut off and may be the beginning
// of one; the place itself if there is neither.
func (r Redactor) found(text string, at int) int {
	text = text[at:]
	if end := strings.Index(text, ellipsis); end >= minSecret && r.begins(strings.TrimSuffix(text[:end], " ")) {
		return at + max(end, r.longest(text))
	}
	return at + r.longest(text)
}

// longest is the length of the longest form that a text begins with. Forms that it begins with are beginnings of each other,
// and of the last form that is not after the text, if they are not that one.
func (r Redactor) longest(text string) int {
	i, same := slices.BinarySearch(r.forms, text)
	if !same {
		i--
	}
	for ; i >= 0; i = r.within[i] {
		if strings.HasPrefix(text, r.forms[i]) {
			return len(r.forms[i])
		}
	}
	return 0
}

// begins is true for a text of at least four bytes that a form begins with.
func (r Redactor) begins(text string) bool {
	i, _ := slices.BinarySearch(r.forms, text)
	return len(text) >= minSecret && i < len(r.forms) && strings.HasPrefix(r.forms[i], text)
}
