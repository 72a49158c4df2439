package build

import (
	"encoding/base64"
	"regexp"
	"slices"
	"strings"
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

// secrets are values that no message may hold.
type secrets []string

// add notes the texts of a Secret's fields, and whatever a generator of Secrets is given.
func (s *secrets) add(value any) {
	switch value := value.(type) {
	case map[string]any:
		for _, field := range value {
			s.add(field)
		}
	case []any:
		for _, item := range value {
			s.add(item)
		}
	case string:
		// Shorter texts are in every message by chance.
		if len(value) >= 4 {
			*s = append(*s, value, base64.StdEncoding.EncodeToString([]byte(value)))
		}
	}
}

// message is a message of kustomize's as one of ours: one line, bounded, and without values of Secrets.
func (s secrets) message(text string) string {
	text = withoutValues(text)
	longestFirst := slices.Clone(s)
	slices.SortFunc(longestFirst, func(a, b string) int { return len(b) - len(a) })
	for _, value := range longestFirst {
		text = strings.ReplaceAll(text, value, redacted)
	}
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "…"
	}
	return text
}
