package preflight

import (
	"cmp"
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
	// unasked is true when it is not known whether the account has the permissions.
	unasked bool
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
// that of the gravest: missing permissions, then a conflict, then what is wrong whatever the cluster, then the rest.
// What the accounts may do is asked, since permissions, quotas and policies refuse alike; what they lack is named as the
// preflight names it.
func Refused(ctx context.Context, problems []Problem) error { return refuse(ctx, nil, problems) }

// refuse is Refused, with what the accounts are known to lack.
func refuse(ctx context.Context, lacks []lack, problems []Problem) error {
	if len(problems)+len(lacks) == 0 {
		return nil
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		if a.stage.name != b.stage.name {
			return strings.Compare(a.stage.name, b.stage.name)
		}
		return inventory.Compare(a.object.key, b.object.key)
	})
	refused := failure.NewStalled("", "")
	if slices.ContainsFunc(problems, Problem.mayPass) {
		refused.Kind = failure.Transient
	}
	found, others := lacking(ctx, problems)
	lacks = append(lacks, found...)
	if len(lacks) > 0 {
		refused.Reason, refused.Stage = v1.ReasonPermissionsMissing, lacks[0].stage
	}
	lines := make([]string, 0, len(others))
	for _, problem := range others {
		cause := problem.cause()
		lines = append(lines, problem.text(cause.advice))
		if slices.Index(gravity, cause.reason) > slices.Index(gravity, refused.Reason) {
			refused.Reason = cause.reason
		}
		refused.Stage = cmp.Or(refused.Stage, problem.stage.name)
	}
	refused.Err = describe(lacks, lines)
	return refused
}

// lacking takes out of problems, which are ordered by stage, those that are about permissions, and has what the accounts
// lack instead.
func lacking(ctx context.Context, problems []Problem) (lacks []lack, others []Problem) {
	for len(problems) > 0 {
		stage := problems[0].stage
		end := slices.IndexFunc(problems, func(p Problem) bool { return p.stage.number != stage.number })
		if end < 0 {
			end = len(problems)
		}
		found, rest := stage.lacking(ctx, problems[:end])
		if len(found.Permissions) > 0 {
			lacks = append(lacks, found)
		}
		others, problems = append(others, rest...), problems[end:]
	}
	return lacks, others
}

// lacking is lacking for the problems of one stage.
func (s ClearedStage) lacking(ctx context.Context, problems []Problem) (lack, []Problem) {
	var needed tenant.Permissions
	for _, problem := range problems {
		needed = append(needed, problem.needs(ctx)...)
	}
	missing, err := s.target.Missing(ctx, needed, true)
	rest := make([]Problem, 0, len(problems))
	for _, problem := range problems {
		problem.unasked = err != nil
		if !slices.ContainsFunc(problem.needs(ctx), func(p tenant.Permission) bool { return slices.Contains(missing, p) }) {
			rest = append(rest, problem)
		}
	}
	return lack{s.name, s.account, missing}, rest
}

// needs are the permissions that a forbidden object may be about.
func (p Problem) needs(ctx context.Context) tenant.Permissions {
	var immutable *immutableError
	if !apierrors.IsForbidden(p.err) || errors.As(p.err, &immutable) {
		return nil
	}
	return p.object.applyNeeds(ctx, p.stage.target)
}

// applyNeeds are the permissions that applying the object needs; none if its kind is not served.
func (o *Object) applyNeeds(ctx context.Context, target Rights) tenant.Permissions {
	resource, err := target.Resource(ctx, o.Desired().GroupVersionKind())
	if err != nil {
		return nil
	}
	verbs := []string{"get", "patch"}
	if o.live == nil {
		verbs = append(verbs, "create")
	}
	return permissionsFor(o.key, resource, verbs...)
}

// mayPass is true for a problem that may go away by itself: an API server or webhook that has a fault, and an object whose
// dry-run had to wait, because the authorizer or the discovery of the API server may lag behind what was just written. An
// object that does not fit its schema is answered with a code for faults (500) too, but without the reason.
func (p Problem) mayPass() bool {
	return p.object.Deferred() || apierrors.ReasonForError(p.err) == metav1.StatusReasonInternalError
}

// gravity orders reasons from the least grave.
var gravity = []string{v1.ReasonApplyFailed, v1.ReasonBuildFailed, v1.ReasonConflict, v1.ReasonPermissionsMissing}

// cause is what a refusal is about, and what can be done about it beside correcting what it names.
type cause struct{ reason, advice string }

func (p Problem) cause() cause {
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
	case apierrors.IsForbidden(p.err) && p.unasked:
		return cause{reason: v1.ReasonPermissionsMissing, advice: "a role may have to allow it to " + p.stage.account.Username()}
	case apierrors.IsForbidden(p.err) && p.object.key.Group == rbacGroup:
		return cause{reason: v1.ReasonPermissionsMissing, advice: p.stage.account.Username() + " may write it, but only give " +
			"what it has itself: give it the same permissions, or the verb bind or escalate on the role"}
	case apierrors.IsForbidden(p.err):
		return cause{reason: v1.ReasonApplyFailed, advice: p.stage.account.Username() + " has the permission: what refuses is a " +
			"quota, a policy or another rule of the cluster; change the object, or have the rule changed"}
	default:
		return cause{reason: v1.ReasonApplyFailed}
	}
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
