package tenant

import (
	"errors"
	"fmt"
	"io"
	"net/http"
)

const (
	// maxAnswer is how long an answer of an API server may be, in bytes when decompressed. An object has at most 3 MiB; of lists
	// that are longer, smaller pages are asked for. The server may be a tenant's own, and its answers fill memory.
	maxAnswer = 8 << 20
	// maxValues is how many values an answer may have, about: the commas and opening brackets of its JSON. Each takes a hundred
	// bytes and more in memory, however short it is. A page of Deployments has half as many.
	maxValues = 1 << 19
	// maxPages is how many pages a list may have: a server could go on for ever.
	maxPages = 2000
)

var (
	errTooLong = fmt.Errorf("the API server answers with more than %d MiB", maxAnswer>>20)
	errTooMany = fmt.Errorf("the API server answers with more than %d values", maxValues)
	errEndless = &unanswered{text: fmt.Sprintf("the API server answers with more than %d pages of a list", maxPages)}
)

// limited is a transport whose answers end with errTooLong where they are longer than maxAnswer, and with errTooMany where they
// have more than maxValues.
type limited struct{ next http.RoundTripper }

var _ http.RoundTripper = limited{}

// RoundTrip implements http.RoundTripper.
func (l limited) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	response.Body = &limitedBody{ReadCloser: response.Body, left: maxAnswer}
	return response, nil
}

type limitedBody struct {
	io.ReadCloser
	left   int64
	values int
	// text is true within a text of the JSON, and escaped after a backslash in it.
	text, escaped bool
}

// Read asks for a byte more than there may be, which tells a long answer from one that just fits.
func (b *limitedBody) Read(into []byte) (int, error) {
	if int64(len(into)) > b.left+1 {
		into = into[:b.left+1]
	}
	n, err := b.ReadCloser.Read(into)
	if int64(n) > b.left {
		return int(b.left), errTooLong
	}
	b.left -= int64(n)
	if b.count(into[:n]); b.values > maxValues {
		return 0, errTooMany
	}
	return n, err
}

// count counts what separates values, outside of texts.
func (b *limitedBody) count(part []byte) {
	for _, char := range part {
		switch {
		case b.escaped:
			b.escaped = false
		case b.text && char == '\\':
			b.escaped = true
		case char == '"':
			b.text = !b.text
		case !b.text && (char == ',' || char == '{' || char == '['):
			b.values++
		}
	}
}

// limitOf is the limit that an answer was cut off at; nil if it was not.
func limitOf(err error) error {
	for _, limit := range []error{errTooLong, errTooMany} {
		if errors.Is(err, limit) {
			return limit
		}
	}
	return nil
}
