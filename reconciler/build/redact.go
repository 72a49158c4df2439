package build

import (
	"cmp"
	"encoding/base64"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/stageset/stageset/reconciler/failure"
)

// maxMessage bounds a message of kustomize's, in bytes.
const maxMessage = 1024

// redacted stands for what is left out of a message.
const redacted = "[…]"

// quotedText is what kustomize quotes in its messages: configurations, texts of patches, objects. What is quoted may hold
// the quoting character itself, so that each match goes to the last one.
var quotedText = regexp.MustCompile("(?s)`.*`|\\[patch: \".*\"\\]|in object .*|node contents:.*|\\{\"[^}]*\\}?")

// withoutValues is the first line of a message of kustomize's, without the texts of manifests that it quotes. Further lines
// are such texts.
func withoutValues(text string) string { return firstLine(quotedText.ReplaceAllString(text, redacted)) }

// Secrets are values that no message may hold, in the forms in which messages quote them. The zero value is empty.
type Secrets struct{ forms []string }

// minSecret is the length from which on a value is looked for wherever it is. Shorter ones are in every message by chance.
const minSecret = 4

// Add notes a value. One of fewer than four bytes is only found where a message has it in quotes.
func (s *Secrets) Add(value string) {
	if value == "" {
		return
	}
	s.note(base64.StdEncoding.EncodeToString([]byte(value)))
	quoted := strconv.Quote(value)
	if len(value) < minSecret {
		s.note(quoted)
		return
	}
	s.note(value)
	s.note(quoted[1 : len(quoted)-1])
	if strings.ContainsAny(value, "\r\n\t") {
		s.note(strings.Join(strings.Fields(value), " "))
		for line := range strings.Lines(value) {
			s.note(strings.TrimSpace(line))
		}
	}
}

func (s *Secrets) note(form string) {
	if len(form) >= minSecret || strings.HasPrefix(form, `"`) {
		s.forms = append(s.forms, form)
	}
}

// Size is how many forms there are, which is what a Redact costs.
func (s Secrets) Size() int { return len(s.forms) }

// Redact is text without the values, also where one is cut off before an ellipsis.
func (s Secrets) Redact(text string) string {
	if text == "" || len(s.forms) == 0 {
		return text
	}
	longestFirst := slices.Clone(s.forms)
	slices.SortFunc(longestFirst, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, form := range longestFirst {
		text = strings.ReplaceAll(text, form, redacted)
	}
	parts := strings.SplitAfter(text, ellipsis)
	for i, part := range parts {
		if head, cut := strings.CutSuffix(part, ellipsis); cut {
			parts[i] = s.withoutEnd(strings.TrimSuffix(head, " ")) + ellipsis
		}
	}
	return strings.Join(parts, "")
}

// ellipsis is where a text was cut off.
const ellipsis = "…"

// withoutEnd is text without the beginning of a value at its end.
func (s Secrets) withoutEnd(text string) string {
	for _, form := range s.forms {
		from := max(0, len(text)-len(form))
		for {
			at := strings.Index(text[from:], form[:min(minSecret, len(form))])
			if at < 0 {
				break
			}
			if from += at; strings.HasPrefix(form, text[from:]) {
				return text[:from]
			}
			from++
		}
	}
	return text
}

// addAll notes the texts of a Secret's fields, and whatever a generator of Secrets is given.
func (s *Secrets) addAll(value any) {
	switch value := value.(type) {
	case map[string]any:
		for _, field := range value {
			s.addAll(field)
		}
	case []any:
		for _, item := range value {
			s.addAll(item)
		}
	case string:
		s.Add(value)
	}
}

// message is a message of kustomize's as one of ours: one line, bounded, and without values of Secrets.
func (s Secrets) message(text string) string {
	return failure.Shorten(strings.Join(strings.Fields(s.Redact(withoutValues(text))), " "), maxMessage)
}
