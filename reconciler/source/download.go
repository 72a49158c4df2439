package source

import (
	"context"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/dial"
	"github.com/stageset/stageset/reconciler/failure"
)

// maxRedirects is how many redirects a download follows.
const maxRedirects = 3

// newClient is an HTTP client that follows redirects only to hosts that may have artifacts.
func newClient(transport http.RoundTripper, hosts Hosts) *http.Client {
	return &http.Client{
		Transport: transport,
		CheckRedirect: func(request *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return &refusedError{fmt.Errorf("more than %d redirects", maxRedirects)}
			}
			if err := hosts.check(request.URL); err != nil {
				return &refusedError{fmt.Errorf("it redirects to a URL that is refused: %w", err)}
			}
			return nil
		},
	}
}

// refusedError is a failure that trying again does not mend.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// download writes the archive of pin to file and verifies size and digest; file is then at its start.
func download(ctx context.Context, client *http.Client, pin Pin, file *os.File) error {
	sum, err := parseDigest(pin.Digest)
	if err != nil {
		return &refusedError{err}
	}
	body, err := open(ctx, client, pin.URL)
	if err != nil {
		return err
	}
	defer body.Close()
	digest := sum.hash()
	limit := int64(MaxDownload)
	if pin.Size > 0 && pin.Size < limit {
		limit = pin.Size
	}
	written, err := io.Copy(io.MultiWriter(diskWriter{file}, digest), io.LimitReader(body, limit+1))
	switch {
	case err != nil:
		return withoutURL(err)
	case written > MaxDownload:
		return &refusedError{fmt.Errorf("it has more than %d bytes", int64(MaxDownload))}
	case pin.Size > 0 && written != pin.Size:
		return &refusedError{fmt.Errorf("it does not have the %d bytes that the source says", pin.Size)}
	}
	got := hex.EncodeToString(digest.Sum(nil))
	if subtle.ConstantTimeCompare([]byte(got), []byte(sum.hex)) != 1 {
		// The digest that it has is not told: who may write a source's status could have it said of an artifact that is
		// somebody else's, and then ask for that.
		return &refusedError{fmt.Errorf("its digest is not %s, which the source says", sum)}
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return &diskError{err}
	}
	return nil
}

// open sends the request and looks at the status of the answer.
func open(ctx context.Context, client *http.Client, address string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, &refusedError{errors.New("its URL is invalid")}
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, withoutURL(err)
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, fmt.Errorf("the server answers %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	}
	if response.ContentLength > MaxDownload {
		response.Body.Close()
		return nil, &refusedError{fmt.Errorf("it has %d bytes; at most %d are accepted",
			response.ContentLength, int64(MaxDownload))}
	}
	return response.Body, nil
}

// withoutURL takes the URL out of an error of net/http: a query may be a signature, which is a credential.
func withoutURL(err error) error {
	var urlErr *url.Error
	if errors.As(err, &urlErr) {
		return urlErr.Err
	}
	return err
}

// fetchFailure is what a failed fetch means to the StageSet: what the network or this machine did wrong is tried again
// soon; what is wrong with the artifact stays wrong for the same pin.
func fetchFailure(ctx context.Context, pin Pin, err error) error {
	const format = "the artifact of %s at %s cannot be used: %w"
	var (
		disk      *diskError
		forbidden *refusedError
		refused   *dial.RefusedError
		archive   *archiveError
	)
	at := location(pin.URL)
	switch {
	case ctx.Err() != nil:
		return failure.NewTransient(v1.ReasonArtifactFailed, format, pin, at, context.Cause(ctx))
	case errors.As(err, &disk):
		return failure.NewTransient(v1.ReasonArtifactFailed, format, pin, at, err)
	case errors.As(err, &archive), errors.As(err, &forbidden), errors.As(err, &refused):
		return failure.NewStalled(v1.ReasonArtifactFailed, format, pin, at, err)
	default:
		return failure.NewTransient(v1.ReasonArtifactFailed, format, pin, at, err)
	}
}

// archiveError is a fault of the archive.
type archiveError struct{ err error }

func (e *archiveError) Error() string { return e.err.Error() }
func (e *archiveError) Unwrap() error { return e.err }

// location is address without what may be a credential.
func location(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "an invalid URL"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
