package build

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"
)

// located is an error at a line of a file; the line is left out if it is not known.
func located(file string, line int, format string, args ...any) error {
	text := fmt.Errorf(format, args...)
	if line <= 0 {
		return fmt.Errorf("%s: %w", file, text)
	}
	return fmt.Errorf("%s:%d: %w", file, line, text)
}

// plainText is data without a UTF-8 byte order mark. Other encodings are refused by name rather than as the characters
// that they would be in UTF-8; so are characters that YAML forbids, which editors do not show.
func plainText(file string, data []byte) ([]byte, error) {
	if name := otherEncoding(data); name != "" {
		return nil, located(file, 0, "is encoded in %s; manifests are UTF-8", name)
	}
	data = bytes.TrimPrefix(data, []byte("\uFEFF"))
	for offset := 0; offset < len(data); {
		r, size := utf8.DecodeRune(data[offset:])
		switch {
		case r == utf8.RuneError && size == 1:
			return nil, located(file, lineAt(data, offset), "byte 0x%02x is not UTF-8", data[offset])
		case forbidden(r):
			return nil, located(file, lineAt(data, offset), "holds the control character U+%04X", r)
		}
		offset += size
	}
	return data, nil
}

func otherEncoding(data []byte) string {
	for _, mark := range []struct{ prefix, name string }{
		{"\x00\x00\xFE\xFF", "UTF-32"}, {"\xFF\xFE\x00\x00", "UTF-32"}, {"\xFE\xFF", "UTF-16"}, {"\xFF\xFE", "UTF-16"},
	} {
		if bytes.HasPrefix(data, []byte(mark.prefix)) {
			return mark.name
		}
	}
	// Without a mark, every other byte of ASCII text is zero.
	if len(data) >= 2 && (data[0] == 0) != (data[1] == 0) {
		return "UTF-16"
	}
	return ""
}

// forbidden says whether a character may not stand in YAML (YAML 1.2, production c-printable).
func forbidden(r rune) bool {
	switch {
	case r < 0x20:
		return r != '\t' && r != '\n' && r != '\r'
	case r < 0x7F:
		return false
	case r < 0xA0:
		return r != 0x85
	default:
		return r == 0xFFFE || r == 0xFFFF
	}
}

// lineAt is the number of the line that holds offset, from 1.
func lineAt(data []byte, offset int) int {
	return 1 + bytes.Count(data[:offset], []byte("\n"))
}

// chunk is the text of one document of a stream.
type chunk struct {
	text []byte
	// line is the number of its first line in the file.
	line int
}

// split splits a YAML stream at its document markers, which begin a line whatever surrounds them. The marker stays with
// the document that it begins, because a document may begin on the same line.
func split(data []byte) []chunk {
	var chunks []chunk
	begin, beginLine := 0, 1
	offset, line := 0, 1
	for text := range bytes.Lines(data) {
		if isMarker(text) && !onlyDirectives(data[begin:offset]) {
			chunks = append(chunks, chunk{text: data[begin:offset], line: beginLine})
			begin, beginLine = offset, line
		}
		offset, line = offset+len(text), line+1
	}
	return append(chunks, chunk{text: data[begin:], line: beginLine})
}

// isMarker says whether a line begins a document.
func isMarker(line []byte) bool {
	rest, found := bytes.CutPrefix(line, []byte("---"))
	return found && (len(rest) == 0 || bytes.ContainsRune([]byte(" \t\r\n"), rune(rest[0])))
}

// onlyDirectives says whether text has directives (%YAML) and nothing that they could be missing from.
func onlyDirectives(text []byte) bool {
	found := false
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		switch {
		case len(line) == 0 || line[0] == '#':
		case line[0] == '%':
			found = true
		default:
			return false
		}
	}
	return found
}

// checkSize refuses a document that is too large to be parsed safely.
func (c chunk) checkSize() error {
	if len(c.text) > MaxDocument {
		return fmt.Errorf("the document has more than %d MiB; split it", MaxDocument>>20)
	}
	separators := 0
	for _, separator := range []string{"\n", ":", ",", "[", "{"} {
		separators += bytes.Count(c.text, []byte(separator))
	}
	if separators > maxSeparators {
		return errors.New("the document has too many values; split it")
	}
	return nil
}
