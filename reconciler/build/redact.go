package build

import (
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	"github.com/stageset/stageset/reconciler/failure"
)

// maxMessage bounds a message of kustomize's, in bytes.
const maxMessage = 1024

// quotedText is what kustomize quotes in its messages: configurations, texts of patches, objects. What is quoted may hold
// the quoting character itself, so that each match goes to the last one.
var quotedText = regexp.MustCompile("(?s)`.*`|\\[patch: \".*\"\\]|in object .*|node contents:.*|\\{\"[^}]*\\}?")

// withoutValues is the first line of a message of kustomize's, without the texts of manifests that it quotes. Further lines
// are such texts.
func withoutValues(text string) string { return firstLine(quotedText.ReplaceAllString(text, redacted)) }

// Secrets are values that no message may hold, in the forms in which messages quote them. The zero value is empty.
type Secrets struct{ forms map[string]bool }

const (
	// minSecret is the length from which on a value is looked for wherever it is. Shorter ones are in every message by chance.
	minSecret = 4
	// maxForms bounds the forms that are kept. When there are more, messages are withheld.
	maxForms = 100_000
)

// Add notes a value: all of it, with and without what is blank around it, and each of its lines. One of fewer than four bytes
// is only found where a message has it in quotes or in base64.
func (s *Secrets) Add(value string) {
	for _, whole := range []string{value, strings.TrimSpace(value)} {
		if whole != "" {
			s.note(base64.StdEncoding.EncodeToString([]byte(whole)))
			s.spell(whole)
		}
	}
	if !strings.ContainsAny(value, "\r\n\t") {
		return
	}
	s.note(strings.Join(strings.Fields(value), " "))
	for line := range strings.Lines(value) {
		if line = strings.TrimSpace(line); len(line) >= minSecret {
			s.spell(line)
		}
	}
}

// spell notes a text as it is, as Go quotes it, and as JSON does, with and without an escape for what HTML gives a meaning.
func (s *Secrets) spell(text string) {
	quotes := []string{`"` + text + `"`}
	if strings.ContainsFunc(text, altered) {
		var inHTML, plain strings.Builder
		writer := json.NewEncoder(&plain)
		writer.SetEscapeHTML(false)
		_, _ = json.NewEncoder(&inHTML).Encode(text), writer.Encode(text) // a text into a text
		quotes = append(quotes, strconv.Quote(text), strings.TrimSpace(inHTML.String()), strings.TrimSpace(plain.String()))
	}
	for _, quote := range quotes {
		if len(text) >= minSecret {
			quote = quote[1 : len(quote)-1]
		}
		s.note(quote)
	}
}

// altered is true for what one of the ways to quote a text does not leave as it is.
func altered(r rune) bool { return r < ' ' || r > '~' || strings.ContainsRune(`"\<>&`, r) }

// note notes a form. Of one that no message has room for, the beginning does.
func (s *Secrets) note(form string) {
	if len(form) > maxText {
		form = strings.Clone(form[:maxText])
	}
	if s.forms == nil {
		s.forms = map[string]bool{}
	}
	if len(s.forms) <= maxForms && (len(form) >= minSecret || strings.HasPrefix(form, `"`)) {
		s.forms[form] = true
	}
}

// Size is how many forms there are.
func (s Secrets) Size() int { return len(s.forms) }

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
	return failure.Shorten(strings.Join(strings.Fields(s.Redactor().Redact(withoutValues(text))), " "), maxMessage)
}
