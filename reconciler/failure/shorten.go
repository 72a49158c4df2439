package failure

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Shorten is a text as messages show it: a single line of at most limit bytes, at least three. A longer one is cut between two
// runes, and shows that it was. What others say is quoted in it: line breaks, escapes of terminals and marks that turn the
// direction of the text around are spaces, so that nobody writes lines of ours, or hides some.
func Shorten(text string, limit int) string {
	if strings.ContainsFunc(text, unseen) {
		text = strings.Map(func(r rune) rune {
			if unseen(r) {
				return ' '
			}
			return r
		}, text)
	}
	return Cut(text, limit)
}

// Cut is a text of at most limit bytes, at least three: a longer one is cut between two runes, and shows that it was.
func Cut(text string, limit int) string {
	const ellipsis = "…"
	if len(text) <= limit {
		return text
	}
	end := limit - len(ellipsis)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + ellipsis
}

// unseen is true for what moves the cursor or the text, and is nothing by itself.
func unseen(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }
