package tenant

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stageset/stageset/reconciler/dial"
	"github.com/stageset/stageset/reconciler/failure"
)

// longestMessage is how many bytes of a Status' message are kept.
const longestMessage = 8 << 10

// unanswered is a request without an answer of an API server. Its text is made here and stable: no ports of our own, no
// time of day, no bytes that came from the other side.
type unanswered struct {
	text string
	err  error
}

func (u *unanswered) Error() string { return u.text }

func (u *unanswered) Unwrap() error { return u.err }

// unreadable is a good answer that is not what was asked for. The cause may quote it and is left out.
func unreadable(error) error { return &unanswered{text: "the answer of the API server cannot be read"} }

// clean reduces an error of client-go to what may be shown: our own failure, a Status, or a text of unansweredText.
func clean(err error) error {
	var failed *failure.Error
	if errors.As(err, &failed) {
		return failed
	}
	var status *apierrors.StatusError
	if errors.As(err, &status) {
		return cleanStatus(status)
	}
	return &unanswered{text: unansweredText(err), err: err}
}

// cleanStatus takes out the body that client-go puts into its own Status when the answer holds none.
func cleanStatus(err *apierrors.StatusError) error {
	cleaned := err.ErrStatus.DeepCopy()
	if apierrors.IsUnexpectedServerError(err) {
		cleaned.Message = fmt.Sprintf("the server answered %d %s without saying why",
			cleaned.Code, http.StatusText(int(cleaned.Code)))
		cleaned.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeUnexpectedServerResponse}}
	}
	if len(cleaned.Message) > longestMessage {
		cleaned.Message = strings.ToValidUTF8(cleaned.Message[:longestMessage], "") + " …"
	}
	return &apierrors.StatusError{ErrStatus: *cleaned}
}

// unansweredText names the causes that somebody can do something about.
func unansweredText(err error) string {
	var timeout interface{ Timeout() bool }
	var certificate *tls.CertificateVerificationError
	var name *net.DNSError
	var refused *dial.RefusedError
	var proxy *proxyError
	switch {
	case errors.As(err, &refused):
		return refused.Error()
	case errors.As(err, &proxy):
		return proxy.Error()
	case limitOf(err) != nil:
		return limitOf(err).Error()
	case errors.Is(err, context.Canceled):
		return "the request was canceled"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "the API server did not answer in time"
	case errors.As(err, &certificate):
		return certificateText(certificate.Err)
	case errors.As(err, &name):
		return fmt.Sprintf("the name %q of the API server cannot be resolved", name.Name)
	}
	if operation := operationOf(err); operation != nil {
		return fmt.Sprintf("%s %s: %v", operation.Op, operation.Addr, operation.Err)
	}
	return "the connection to the API server broke before the answer came"
}

// operationOf is the part of an error that says what was tried with which address; nil if there is none. What was tried by
// way of a proxy is in an error of its own, without an address.
func operationOf(err error) *net.OpError {
	var operation *net.OpError
	for errors.As(err, &operation) {
		if operation.Addr != nil {
			return operation
		}
		err = operation.Err
	}
	return nil
}

// certificateText leaves out the current time, which the library's own text has.
func certificateText(err error) string {
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return "the certificate of the API server has expired or is not valid yet"
	}
	return fmt.Sprintf("the certificate of the API server is not trusted: %v", err)
}

// missesObject says that an API server which knows the kind has no such object, or not the namespace to create it in. A
// 404 that names no object says that nothing serves the path, which is no proof that an object is gone.
func missesObject(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || apierrors.IsUnexpectedServerError(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name != ""
}
