package tenant

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

// Reasons are the condition reasons of what an API server refuses; they depend on what was asked of it.
type Reasons struct {
	// Forbidden is for what the account may not do; empty is PermissionsMissing.
	Forbidden string
	// NotFound is for an object, namespace or kind that does not exist; empty is Refused.
	NotFound string
	// Refused is for everything else that the server has understood and does not want; empty is ApplyFailed.
	Refused string
}

// Explain turns an error of a Client into a *failure.Error whose message is "what: the server's message"; what says what
// was tried, on which object and as whom ("apply Deployment payments/api as payments/deployer"). A nil error stays nil and
// a *failure.Error in the chain is returned as it is. Without an answer of an API server, with one that only says "not
// now" (429, 503, 504), and with a token that is refused again it is TargetUnreachable and Transient; other 5xx, 409 and
// 410 are Transient; what is left is Stalled.
func Explain(err error, what string, reasons Reasons) error {
	if err == nil {
		return nil
	}
	var failed *failure.Error
	if errors.As(err, &failed) {
		return failed
	}
	refused := cmp.Or(reasons.Refused, v1.ReasonApplyFailed)
	switch {
	case isUnreachable(err):
		return failure.NewTransient(v1.ReasonTargetUnreachable, "%s: %w", what, err)
	case apierrors.IsUnauthorized(err):
		return failure.NewTransient(v1.ReasonTargetUnreachable,
			"%s: the API server does not accept the credentials: %w", what, err)
	case meta.IsNoMatchError(err):
		return failure.NewStalled(cmp.Or(reasons.NotFound, refused),
			"%s: the cluster does not serve it: %w: correct apiVersion and kind, or install what defines it", what, err)
	case apierrors.IsForbidden(err):
		return failure.NewStalled(cmp.Or(reasons.Forbidden, v1.ReasonPermissionsMissing), "%s: %w", what, err)
	case apierrors.IsNotFound(err):
		return failure.NewStalled(cmp.Or(reasons.NotFound, refused), "%s: %w", what, err)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsResourceExpired(err),
		code(err) >= http.StatusInternalServerError:
		return failure.NewTransient(refused, "%s: %w", what, err)
	default:
		return failure.NewStalled(refused, "%s: %w", what, err)
	}
}

// OutOfReach is true for an error that says nothing about what was asked for, because nobody could be asked: there is no way to
// the cluster, no answer, no access, or a server that fails (5xx), as one whose etcd has lost its quorum does.
func OutOfReach(err error) bool {
	var failed *failure.Error
	return errors.As(err, &failed) || isUnreachable(err) || apierrors.IsUnauthorized(err) ||
		code(err) >= http.StatusInternalServerError
}

// isUnreachable says that there was no answer, one that is not of an API server, or one that it does not work on requests
// at the moment.
func isUnreachable(err error) bool {
	var none *unanswered
	return errors.As(err, &none) || apierrors.IsUnexpectedServerError(err) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
}

// code is the HTTP status of the answer; an error that is no answer at all counts as one nobody foresaw.
func code(err error) int {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return http.StatusInternalServerError
	}
	return int(status.Status().Code)
}
