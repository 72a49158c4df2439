package preflight

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/ownership"
)

// maxProblems is how many problems a message lists before it counts.
const maxProblems = 20

// Problem is one object that the API server refuses.
type Problem struct {
	stage  string
	object *Object
	err    error
}

// Problem is the API server's refusal of one of the stage's objects.
func (s ClearedStage) Problem(object *Object, err error) Problem {
	return Problem{stage: s.name, object: object, err: err}
}

// text names stage, object, origin, and what the API server says; the client has taken out what may quote a Secret.
func (p Problem) text() string {
	origin := ""
	if p.object.rendered.Origin != "" {
		origin = " (" + p.object.rendered.Origin + ")"
	}
	return fmt.Sprintf("stage %s: %s%s: %s", p.stage, p.object.key, origin, p.err)
}

// Refused is one *failure.Error that lists all problems, ordered by stage and object; nil if there are none. Its reason is
// that of the gravest: a conflict, then missing permissions, then what is wrong whatever the cluster, then anything else.
func Refused(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	slices.SortFunc(problems, func(a, b Problem) int {
		if a.stage != b.stage {
			return strings.Compare(a.stage, b.stage)
		}
		return inventory.Compare(a.object.key, b.object.key)
	})
	lines := make([]string, 0, maxProblems+1)
	for _, problem := range problems[:min(len(problems), maxProblems)] {
		lines = append(lines, problem.text())
	}
	if more := len(problems) - maxProblems; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	refused := failure.NewStalled(reason(problems), "%s", strings.Join(lines, "; "))
	refused.Stage = problems[0].stage
	if slices.ContainsFunc(problems, func(p Problem) bool { return p.object.Deferred() }) {
		// What it waited for was written a moment ago: the authorizer or the discovery of the API server may lag behind.
		refused.Kind = failure.Transient
	}
	return refused
}

func reason(problems []Problem) string {
	conflict, forbidden, manifest := false, false, false
	for _, problem := range problems {
		conflict = conflict || isConflict(problem.err)
		forbidden = forbidden || apierrors.IsForbidden(problem.err)
		manifest = manifest || isManifestError(problem.err)
	}
	switch {
	case conflict:
		return v1.ReasonConflict
	case forbidden:
		return v1.ReasonPermissionsMissing
	case manifest:
		return v1.ReasonBuildFailed
	default:
		return v1.ReasonApplyFailed
	}
}

// cannotAsk is the failure of a target that gives no answer about objects: it may go away by itself.
func cannotAsk(stage, account string, err error) error {
	var known *failure.Error
	if errors.As(err, &known) {
		return known.InStage(stage)
	}
	reason := v1.ReasonTargetUnreachable
	if apierrors.IsForbidden(err) {
		reason = v1.ReasonPermissionsMissing
	}
	failed := failure.NewTransient(reason, "stage %s, as %s: %w", stage, account, err)
	failed.Stage = stage
	return failed
}

func isConflict(err error) bool {
	var conflict *ownership.ConflictError
	return errors.As(err, &conflict)
}

func isManifestError(err error) bool {
	var wrong *ManifestError
	return errors.As(err, &wrong)
}

func isUnknownKind(err error) bool { return meta.IsNoMatchError(err) }
