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
	// maxPages is how many pages a list may have: a server could go on for ever.
	maxPages = 2000
)

var (
	errTooLong = fmt.Errorf("the API server answers with more than %d MiB", maxAnswer>>20)
	errEndless = &unanswered{text: fmt.Sprintf("the API server answers with more than %d pages of a list", maxPages)}
)

// limited is a transport whose answers end with errTooLong where they are longer than maxAnswer.
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
	left int64
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
	return n, err
}

// tooLong is true for the error of an answer that was cut off.
func tooLong(err error) bool { return errors.Is(err, errTooLong) }
