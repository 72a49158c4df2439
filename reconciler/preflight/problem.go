package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/ownership"
	"github.com/stageset/stageset/reconciler/tenant"
)

// maxProblems is how many problems a message lists before it counts.
const maxProblems = 20

// Problem is one object that cannot be applied as it is.
type Problem struct {
	stage  ClearedStage
	object *Object
	err    error
}

// Problem is the refusal of one of the stage's objects.
func (s ClearedStage) Problem(object *Object, err error) Problem {
	return Problem{stage: s, object: object, err: err}
}

// text names stage, object, origin, what the API server says, and what can be done about it; the client has taken out what
// may quote a Secret.
func (p Problem) text(advice string) string {
	origin := ""
	if p.object.rendered.Origin != "" {
		origin = " (" + p.object.rendered.Origin + ")"
	}
	if advice != "" {
		advice = ": " + advice
	}
	return fmt.Sprintf("stage %s: %s%s: %s%s", p.stage.name, p.object.key, origin, p.err, advice)
}

// Refused is one *failure.Error that lists all problems, ordered by stage and object; nil if there are none. Its reason is
// that of the gravest listed: a conflict, then missing permissions, then what is wrong whatever the cluster, then the rest.
// What the account may do is asked for those that are listed, since permissions, quotas and policies refuse alike.
func Refused(ctx context.Context, problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		if a.stage.name != b.stage.name {
			return strings.Compare(a.stage.name, b.stage.name)
		}
		return inventory.Compare(a.object.key, b.object.key)
	})
	lines := make([]string, 0, maxProblems+1)
	gravest := cause{}
	for _, problem := range problems[:min(len(problems), maxProblems)] {
		cause := problem.cause(ctx)
		lines = append(lines, problem.text(cause.advice))
		if slices.Index(gravity, cause.reason) > slices.Index(gravity, gravest.reason) {
			gravest = cause
		}
	}
	if more := len(problems) - maxProblems; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	refused := failure.NewStalled(gravest.reason, "%s", strings.Join(lines, "; "))
	refused.Stage = problems[0].stage.name
	if slices.ContainsFunc(problems, Problem.mayPass) {
		refused.Kind = failure.Transient
	}
	return refused
}

// mayPass is true for a problem that may go away by itself: an API server or webhook that has a fault, and an object whose
// dry-run had to wait, because the authorizer or the discovery of the API server may lag behind what was just written. An
// object that does not fit its schema is answered with a code for faults (500) too, but without the reason.
func (p Problem) mayPass() bool {
	return p.object.Deferred() || apierrors.ReasonForError(p.err) == metav1.StatusReasonInternalError
}

// gravity orders reasons from the least grave.
var gravity = []string{v1.ReasonApplyFailed, v1.ReasonBuildFailed, v1.ReasonPermissionsMissing, v1.ReasonConflict}

// cause is what a refusal is about, and what can be done about it beside correcting what it names.
type cause struct{ reason, advice string }

func (p Problem) cause(ctx context.Context) cause {
	var immutable *immutableError
	switch {
	case errors.As(p.err, &immutable):
		return cause{reason: immutable.reason}
	case isConflict(p.err):
		return cause{reason: v1.ReasonConflict}
	case isManifestError(p.err):
		return cause{reason: v1.ReasonBuildFailed}
	case meta.IsNoMatchError(p.err):
		return cause{reason: v1.ReasonApplyFailed, advice: "correct apiVersion and kind, or install what defines it"}
	case missesNamespace(p.err):
		return cause{reason: v1.ReasonApplyFailed, advice: "create it, or have the release render it in this stage or before"}
	case apierrors.IsForbidden(p.err) && !p.permitted(ctx):
		return cause{reason: v1.ReasonPermissionsMissing, advice: "a role has to allow it to " + p.stage.account.Username()}
	case apierrors.IsForbidden(p.err) && p.object.key.Group == rbacGroup:
		return cause{reason: v1.ReasonPermissionsMissing, advice: p.stage.account.Username() + " may write it, but only give what it " +
			"has itself: give it the same permissions, or the verb bind or escalate on the role"}
	case apierrors.IsForbidden(p.err):
		return cause{reason: v1.ReasonApplyFailed, advice: p.stage.account.Username() + " has the permission: what refuses is a quota, " +
			"a policy or another rule of the cluster; change the object, or have the rule changed"}
	default:
		return cause{reason: v1.ReasonApplyFailed}
	}
}

// permitted is true when the account has every permission that applying the object needs, so that a refusal is not about
// them.
func (p Problem) permitted(ctx context.Context) bool {
	verbs := []string{"get", "patch"}
	if p.object.live == nil {
		verbs = append(verbs, "create")
	}
	for _, verb := range verbs {
		gvk := p.object.Desired().GroupVersionKind()
		allowed, err := p.stage.target.May(ctx, verb, gvk, p.object.key.Namespace, p.object.key.Name)
		if err != nil || !allowed {
			return false
		}
	}
	return true
}

// cannotAsk is the failure of a target that gives no answer about objects: it may go away by itself.
func cannotAsk(stage string, account tenant.Account, err error) error {
	var known *failure.Error
	if errors.As(err, &known) {
		return known.InStage(stage)
	}
	reason := v1.ReasonTargetUnreachable
	if apierrors.IsForbidden(err) {
		reason = v1.ReasonPermissionsMissing
	}
	failed := failure.NewTransient(reason, "stage %s, as %s: %w", stage, account.Username(), err)
	failed.Stage = stage
	return failed
}

// IsRefusal is true for an answer that is about the object, and not about whether the API server can be asked.
func IsRefusal(err error) bool {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return !apierrors.IsTooManyRequests(err) && !apierrors.IsUnauthorized(err) && !apierrors.IsUnexpectedServerError(err) &&
			!apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) && !apierrors.IsServiceUnavailable(err)
	}
	return isConflict(err) || meta.IsNoMatchError(err) || errors.Is(err, ErrProtected)
}

// missesNamespace is true when the namespace of an object does not exist, as the API server says when it cannot create it.
func missesNamespace(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == "namespaces"
}

func isConflict(err error) bool {
	var conflict *ownership.ConflictError
	return errors.As(err, &conflict)
}

func isManifestError(err error) bool {
	var wrong *manifestError
	return errors.As(err, &wrong)
}
