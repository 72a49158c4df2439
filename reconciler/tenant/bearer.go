package tenant

import (
	"errors"
	"io"
	"net/http"
)

// bearer is the identity of one account on the way to a server that takes its tokens. The token is looked up for every request,
// so a client outlives any number of tokens.
type bearer struct {
	grant  grant
	tokens *tokens
	next   http.RoundTripper
}

var _ http.RoundTripper = (*bearer)(nil)

// RoundTrip sends the request with the account's token. A 401 is answered with another token and the same request once
// more: authentication comes before anything that a request can do, so nothing happens twice. A second 401 is the answer.
func (b *bearer) RoundTrip(request *http.Request) (*http.Response, error) {
	current, err := b.tokens.get(request.Context(), b.grant)
	if err != nil {
		closeBody(request)
		return nil, err
	}
	response, err := b.send(request, current)
	if err != nil || response.StatusCode != http.StatusUnauthorized || !replayable(request) {
		return response, err
	}
	replacement, err := b.tokens.replace(request.Context(), b.grant, current)
	if errors.Is(err, errRejected) {
		return response, nil
	}
	discard(response)
	if err != nil {
		return nil, err
	}
	again := request.Clone(request.Context())
	if request.GetBody != nil {
		if again.Body, err = request.GetBody(); err != nil {
			return nil, err
		}
	}
	return b.send(again, replacement)
}

// send leaves the caller's request as it is, as a RoundTripper must; client-go shares its headers between attempts.
func (b *bearer) send(request *http.Request, with *token) (*http.Response, error) {
	authenticated := request.Clone(request.Context())
	authenticated.Header.Set("Authorization", "Bearer "+with.value)
	response, err := b.next.RoundTrip(authenticated)
	if err == nil && response.StatusCode != http.StatusUnauthorized {
		with.worked.Store(true)
	}
	return response, err
}

func replayable(request *http.Request) bool {
	return request.Body == nil || request.Body == http.NoBody || request.GetBody != nil
}

func closeBody(request *http.Request) {
	if request.Body != nil {
		_ = request.Body.Close()
	}
}

// discard reads what little is left of an answer, so that its connection can be used again.
func discard(response *http.Response) {
	const most = 4 << 10
	_, _ = io.CopyN(io.Discard, response.Body, most)
	_ = response.Body.Close()
}
