// Package status turns the outcome of a pass into the status of a StageSet. It is pure: it never writes, reads no clock, and
// Ready is always derived, never set by hand.
package status

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

// Kind is how a pass ended.
type Kind int

const (
	// Succeeded: everything is applied, healthy and pruned.
	Succeeded Kind = iota
	// Progressing: the run waits for something of its own.
	Progressing
	// Suspended: spec.suspend is set.
	Suspended
	// Failed: the pass ended in Outcome.Failure.
	Failed
)

// Outcome is what a pass found out.
type Outcome struct {
	Kind Kind
	// Failure is the failure of a Failed pass.
	Failure *failure.Error
	// Message says what a Progressing run waits for, or what a Succeeded one did.
	Message string
	// Stages are the stages of the run; nil when the pass did not come as far as a run.
	Stages []v1.StageStatus
	// CurrentStage is the stage that the run is at.
	CurrentStage string
	// Revisions maps namespace/name of each source to the revision of the run; nil when the sources are not pinned.
	Revisions map[string]string
	// Running is what keeps the release that runs from being Ready, where a newer one is held; nil if it is healthy.
	Running *failure.Error
	// Begun is true when the run has written something that was not applied before.
	Begun bool
	// Checked is true when the pass came as far as the permissions that the release needs.
	Checked bool
	// RepeatedStage is the value of the annotation that asked for a stage to be applied again, once it was; else empty.
	RepeatedStage string
}

// Next is the status after a pass. It is equal to the old one when nothing changed, so that an idle pass writes nothing.
func Next(set *v1.StageSet, outcome Outcome, now time.Time) v1.StageSetStatus {
	next, at := *set.Status.DeepCopy(), metav1.NewTime(now.Truncate(time.Second))
	next.ObservedGeneration = set.Generation
	if requested, asked := set.Annotations[v1.AnnotationRequestedAt]; asked {
		next.LastHandledReconcileAt = requested
	}
	if outcome.Revisions != nil {
		next.LastAttemptedRevisions = maps.Clone(outcome.Revisions)
	}
	if outcome.Stages != nil {
		next.Stages = stages(set.Status.Stages, outcome)
	}
	if outcome.RepeatedStage != "" {
		next.LastHandledReconcileStage = outcome.RepeatedStage
	}
	next.CurrentStage = outcome.CurrentStage
	next.History = history(set.Status.History, outcome, at)
	if outcome.Kind == Succeeded {
		next.LastAppliedRevisions = maps.Clone(outcome.Revisions)
		next.Revision = Short(outcome.Revisions)
	}
	conditions := conditions{set: set, next: &next, now: at}
	conditions.derive(outcome)
	conditions.preflight(outcome)
	return next
}

// history is the history with the run of the outcome, if that has ended. The revisions that are already in front are the
// same run still: it can fail and then succeed, and what it succeeded in once it does not lose.
func history(old []v1.HistoryEntry, outcome Outcome, now metav1.Time) []v1.HistoryEntry {
	entry := v1.HistoryEntry{Revisions: maps.Clone(outcome.Revisions), FinishedAt: now}
	switch {
	case outcome.Kind == Succeeded:
		entry.Result = v1.RunSucceeded
	case outcome.Kind == Failed && outcome.Failure.Kind == failure.Stalled && outcome.Revisions != nil:
		entry.Result = v1.RunFailed
	default:
		return old
	}
	if len(old) > 0 && maps.Equal(old[0].Revisions, entry.Revisions) {
		if old[0].Result == entry.Result || old[0].Result == v1.RunSucceeded {
			return old
		}
		old = old[1:]
	}
	return append([]v1.HistoryEntry{entry}, old[:min(len(old), v1.MaxHistory-1)]...)
}

// stages are the stages after a pass. Those that the run found as an earlier one had left them keep their times: an idle pass
// starts nothing. As long as a run has written nothing that was not applied before, the stages that it has not reached are as
// the last release has left them, and stay so. Messages are cut, because they quote what objects say of themselves.
func stages(old []v1.StageStatus, outcome Outcome) []v1.StageStatus {
	current := slices.Clone(outcome.Stages)
	for i := range current {
		stage := &current[i]
		stage.Message = Truncate(stage.Message)
		at := slices.IndexFunc(old, func(s v1.StageStatus) bool { return s.Name == stage.Name })
		if at < 0 || old[at].Phase != v1.StageReady {
			continue
		}
		switch {
		case stage.Phase == v1.StagePending && !outcome.Begun:
			*stage = old[at]
		case stage.Phase == v1.StageReady && stage.Digest == old[at].Digest:
			stage.StartedAt, stage.ReadyAt = old[at].StartedAt, old[at].ReadyAt
		}
	}
	return current
}

// conditions derives the conditions of one status.
type conditions struct {
	set  *v1.StageSet
	next *v1.StageSetStatus
	now  metav1.Time
}

func (c conditions) derive(outcome Outcome) {
	switch outcome.Kind {
	case Succeeded:
		c.ready(metav1.ConditionTrue, v1.ReasonSucceeded, outcome.Message)
		c.remove(v1.ConditionReconciling, v1.ConditionStalled)
	case Progressing:
		c.ready(metav1.ConditionUnknown, v1.ReasonProgressing, outcome.Message)
		c.present(v1.ConditionReconciling, v1.ReasonProgressing, outcome.Message)
		c.remove(v1.ConditionStalled)
	case Suspended:
		c.held(v1.ReasonSuspended, "spec.suspend is set: nothing is applied", outcome.Running)
		c.remove(v1.ConditionReconciling, v1.ConditionStalled)
	case Failed:
		c.failed(outcome)
	}
}

func (c conditions) failed(outcome Outcome) {
	failed := outcome.Failure
	message := failed.Error()
	if waitsForOthers(failed) {
		c.held(failed.Reason, message, outcome.Running)
	} else {
		c.ready(metav1.ConditionFalse, failed.Reason, c.stillRunning(message))
	}
	if failed.Kind == failure.Stalled {
		c.present(v1.ConditionStalled, failed.Reason, message)
		c.remove(v1.ConditionReconciling)
		return
	}
	c.present(v1.ConditionReconciling, failed.Reason, message)
	c.remove(v1.ConditionStalled)
}

// preflight says whether the accounts have the permissions that the release needs, once that was asked.
func (c conditions) preflight(outcome Outcome) {
	next := metav1.Condition{
		Type: v1.ConditionPreflight, Status: metav1.ConditionTrue, Reason: v1.ReasonSucceeded,
		Message: "the accounts have the permissions that the release needs", ObservedGeneration: c.set.Generation,
	}
	switch {
	case !outcome.Checked:
		return
	case outcome.Failure != nil && outcome.Failure.Reason == v1.ReasonPermissionsMissing:
		next.Status, next.Reason, next.Message = metav1.ConditionFalse, outcome.Failure.Reason, outcome.Failure.Error()
	}
	c.condition(next)
}

// waitsForOthers is true for what holds a new release without anything being wrong with the StageSet itself.
func waitsForOthers(failed *failure.Error) bool {
	switch failed.Reason {
	case v1.ReasonDependencyNotReady, v1.ReasonSourceNotReady, v1.ReasonSourceNotFound:
		return failed.Kind == failure.Waiting
	}
	return false
}

// held is Ready=True where a release runs and is healthy, with what is held; where it is not healthy, the condition says so
// first. It keeps the generation that the release has earned it at, so that nobody takes the new spec for applied.
func (c conditions) held(reason, message string, running *failure.Error) {
	earned := c.earned()
	if earned == nil {
		c.ready(metav1.ConditionFalse, reason, c.stillRunning(message))
		return
	}
	next := metav1.Condition{
		Type: v1.ConditionReady, Status: metav1.ConditionTrue, Reason: reason, ObservedGeneration: earned.ObservedGeneration,
	}
	if running != nil {
		next.Status, next.Reason = metav1.ConditionFalse, running.Reason
		if running.Reason == v1.ReasonProgressing {
			next.Status = metav1.ConditionUnknown
		}
		message = running.Error() + "; held: " + message
	}
	next.Message = c.stillRunning(message)
	c.condition(next)
}

// earned is the condition Ready where it is about a release that came to its end: it is True, or, while a newer one is held,
// says why what runs is not healthy. What it says of any other failure, Reconciling or Stalled says with the same reason.
func (c conditions) earned() *metav1.Condition {
	ready := meta.FindStatusCondition(c.set.Status.Conditions, v1.ConditionReady)
	if ready == nil || ready.Status == metav1.ConditionTrue {
		return ready
	}
	for _, kind := range []string{v1.ConditionReconciling, v1.ConditionStalled} {
		other := meta.FindStatusCondition(c.set.Status.Conditions, kind)
		if other != nil && other.Reason == ready.Reason {
			return nil
		}
	}
	if ready.Reason == v1.ReasonSuspended {
		return nil // nothing has been released before it was suspended
	}
	return ready
}

func (c conditions) stillRunning(message string) string {
	if c.set.Status.Revision == "" || !c.set.DeletionTimestamp.IsZero() {
		return message
	}
	running := "; still running " + failure.Shorten(c.set.Status.Revision, maxMessage/2)
	return failure.Shorten(message, maxMessage-len(running)) + running
}

func (c conditions) ready(status metav1.ConditionStatus, reason, message string) {
	c.condition(metav1.Condition{
		Type: v1.ConditionReady, Status: status, Reason: reason, Message: message, ObservedGeneration: c.set.Generation,
	})
}

// present sets a condition that is only there when it is true.
func (c conditions) present(kind, reason, message string) {
	c.condition(metav1.Condition{
		Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message, ObservedGeneration: c.set.Generation,
	})
}

func (c conditions) condition(condition metav1.Condition) {
	condition.Message = Truncate(condition.Message)
	condition.LastTransitionTime = c.now
	meta.SetStatusCondition(&c.next.Conditions, condition)
}

func (c conditions) remove(kinds ...string) {
	for _, kind := range kinds {
		meta.RemoveStatusCondition(&c.next.Conditions, kind)
	}
}

// maxMessage is the longest message, in bytes.
const maxMessage = 8 << 10

// passing is what changes from one try to the next in the texts of connections that broke: our own port, and numbers of
// HTTP/2 streams.
var passing = regexp.MustCompile(`\b((?:read|write) (?:tcp|udp) )\S+->|(stream error: stream) ID \d+`)

// Truncate makes a message stable from pass to pass, cuts it to 8 KiB on a rune border and shows that it did.
func Truncate(message string) string {
	return failure.Shorten(passing.ReplaceAllString(message, "$1$2"), maxMessage)
}

// Short is the short form of revisions for a printer column: each once, hashes cut to eight digits.
func Short(revisions map[string]string) string {
	var short []string
	for _, source := range slices.Sorted(maps.Keys(revisions)) {
		if revision := shorten(revisions[source]); !slices.Contains(short, revision) {
			short = append(short, revision)
		}
	}
	return strings.Join(short, ",")
}

// shorten cuts the hash of a Flux revision, <name>@<algorithm>:<hash>.
func shorten(revision string) string {
	const digits = 8
	at := strings.LastIndexByte(revision, ':')
	if at < 0 || len(revision)-at-1 <= digits {
		return revision
	}
	return revision[:at+1+digits]
}
