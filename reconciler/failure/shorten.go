package failure

import "unicode/utf8"

// Shorten is a text of at most limit bytes, at least three: a longer one is cut between two runes, and shows that it was.
func Shorten(text string, limit int) string {
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
