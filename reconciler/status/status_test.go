package status

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// running is a StageSet whose release of generation 1 runs.
func running() *v1.StageSet {
	return &v1.StageSet{
		ObjectMeta: metav1.ObjectMeta{Generation: 2},
		Status: v1.StageSetStatus{
			Revision: "main@sha1:11111111",
			Conditions: []metav1.Condition{{
				Type: v1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1.ReasonSucceeded, ObservedGeneration: 1,
			}},
		},
	}
}

func fresh() *v1.StageSet { return &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Generation: 1}} }

func condition(kind string, status metav1.ConditionStatus, reason, message string, generation int64) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: generation}
}

func TestConditions(t *testing.T) {
	denied := failure.NewStalled(v1.ReasonPolicyViolation, "p/r: no")
	waiting := failure.NewWaiting(v1.ReasonSourceNotReady, 0, "no artifact")
	broken := failure.NewTransient(v1.ReasonTargetUnreachable, "timeout")
	cases := map[string]struct {
		set     *v1.StageSet
		outcome Outcome
		want    []metav1.Condition
	}{
		"succeeded": {set: running(), outcome: Outcome{Kind: Succeeded, Message: "done"}, want: []metav1.Condition{
			condition(v1.ConditionReady, metav1.ConditionTrue, v1.ReasonSucceeded, "done", 2),
		}},
		"progressing": {set: fresh(), outcome: Outcome{Kind: Progressing, Message: "stage a waits"}, want: []metav1.Condition{
			condition(v1.ConditionReady, metav1.ConditionUnknown, v1.ReasonProgressing, "stage a waits", 1),
			condition(v1.ConditionReconciling, metav1.ConditionTrue, v1.ReasonProgressing, "stage a waits", 1),
		}},
		"denied while a release runs": {set: running(), outcome: Outcome{Kind: Failed, Failure: denied},
			want: []metav1.Condition{
				condition(v1.ConditionReady, metav1.ConditionFalse, v1.ReasonPolicyViolation,
					"p/r: no; still running main@sha1:11111111", 2),
				condition(v1.ConditionStalled, metav1.ConditionTrue, v1.ReasonPolicyViolation, "p/r: no", 2),
			}},
		"transient": {set: fresh(), outcome: Outcome{Kind: Failed, Failure: broken}, want: []metav1.Condition{
			condition(v1.ConditionReady, metav1.ConditionFalse, v1.ReasonTargetUnreachable, "timeout", 1),
			condition(v1.ConditionReconciling, metav1.ConditionTrue, v1.ReasonTargetUnreachable, "timeout", 1),
		}},
		// T-29: a held release stays Ready, but at the generation it was applied at.
		"held while a release runs": {set: running(), outcome: Outcome{Kind: Failed, Failure: waiting},
			want: []metav1.Condition{
				condition(v1.ConditionReady, metav1.ConditionTrue, v1.ReasonSourceNotReady,
					"no artifact; still running main@sha1:11111111", 1),
				condition(v1.ConditionReconciling, metav1.ConditionTrue, v1.ReasonSourceNotReady, "no artifact", 2),
			}},
		"waits for its first source": {set: fresh(), outcome: Outcome{Kind: Failed, Failure: waiting}, want: []metav1.Condition{
			condition(v1.ConditionReady, metav1.ConditionFalse, v1.ReasonSourceNotReady, "no artifact", 1),
			condition(v1.ConditionReconciling, metav1.ConditionTrue, v1.ReasonSourceNotReady, "no artifact", 1),
		}},
		"suspended while a release runs": {set: running(), outcome: Outcome{Kind: Suspended}, want: []metav1.Condition{
			condition(v1.ConditionReady, metav1.ConditionTrue, v1.ReasonSuspended,
				"spec.suspend is set: nothing is applied; still running main@sha1:11111111", 1),
		}},
		"suspended from the start": {set: fresh(), outcome: Outcome{Kind: Suspended}, want: []metav1.Condition{
			condition(v1.ConditionReady, metav1.ConditionFalse, v1.ReasonSuspended, "spec.suspend is set: nothing is applied", 1),
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			next := Next(tc.set, tc.outcome, now)
			ignoreTime := cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime")
			if diff := cmp.Diff(tc.want, next.Conditions, ignoreTime); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if next.ObservedGeneration != tc.set.Generation {
				t.Errorf("observedGeneration is %d, want %d", next.ObservedGeneration, tc.set.Generation)
			}
		})
	}
}

// A release is held from pass to pass, and what it holds back does not make what runs healthy: that is looked at. It is Ready
// again when it is healthy again, at the generation that it had earned it at.
func TestWhatRunsIsNotHealthyWhileANewerReleaseIsHeld(t *testing.T) {
	dependency := failure.NewWaiting(v1.ReasonDependencyNotReady, 0, "base is not Ready")
	held := func(running *failure.Error) Outcome {
		return Outcome{Kind: Failed, Failure: dependency, Running: running}
	}
	suspended := func(running *failure.Error) Outcome { return Outcome{Kind: Suspended, Running: running} }
	progresses := failure.NewWaiting(v1.ReasonProgressing, 0, "web: Available: 0/1")
	failed := failure.NewStalled(v1.ReasonHealthCheckFailed, "web: deadline exceeded")
	unasked := failure.NewTransient(v1.ReasonTargetUnreachable, "no answer")
	waits := Outcome{Kind: Progressing, Message: "stage a waits"}
	denied := Outcome{Kind: Failed, Failure: failure.NewStalled(v1.ReasonPolicyViolation, "p/r: no")}
	const rest = "; still running main@sha1:11111111"
	cases := map[string]struct {
		passes []Outcome
		want   metav1.Condition // Ready
		also   string           // the reason of Reconciling
	}{
		"in progress": {
			passes: []Outcome{held(progresses)}, also: v1.ReasonDependencyNotReady,
			want: condition(v1.ConditionReady, metav1.ConditionUnknown, v1.ReasonProgressing,
				"web: Available: 0/1; held: base is not Ready"+rest, 1),
		},
		"failed": {
			passes: []Outcome{held(failed)}, also: v1.ReasonDependencyNotReady,
			want: condition(v1.ConditionReady, metav1.ConditionFalse, v1.ReasonHealthCheckFailed,
				"web: deadline exceeded; held: base is not Ready"+rest, 1),
		},
		"failed, suspended": {
			passes: []Outcome{suspended(failed)},
			want: condition(v1.ConditionReady, metav1.ConditionFalse, v1.ReasonHealthCheckFailed,
				"web: deadline exceeded; held: spec.suspend is set: nothing is applied"+rest, 1),
		},
		"cannot be asked": {
			passes: []Outcome{held(unasked)}, also: v1.ReasonDependencyNotReady,
			want: condition(v1.ConditionReady, metav1.ConditionFalse, v1.ReasonTargetUnreachable,
				"no answer; held: base is not Ready"+rest, 1),
		},
		"healthy again": {
			passes: []Outcome{held(progresses), held(failed), held(unasked), held(nil)}, also: v1.ReasonDependencyNotReady,
			want: condition(v1.ConditionReady, metav1.ConditionTrue, v1.ReasonDependencyNotReady, "base is not Ready"+rest, 1),
		},
		"healthy again, suspended": {
			passes: []Outcome{suspended(progresses), held(failed), suspended(failed), suspended(nil)},
			want: condition(v1.ConditionReady, metav1.ConditionTrue, v1.ReasonSuspended,
				"spec.suspend is set: nothing is applied"+rest, 1),
		},
		// Nobody knows how much of it there is.
		"held on its way": {
			passes: []Outcome{held(progresses), waits, held(nil)}, also: v1.ReasonDependencyNotReady,
			want: condition(v1.ConditionReady, metav1.ConditionFalse, v1.ReasonDependencyNotReady, "base is not Ready"+rest, 2),
		},
		"suspended when it was denied": {
			passes: []Outcome{denied, suspended(nil), suspended(nil)},
			want: condition(v1.ConditionReady, metav1.ConditionFalse, v1.ReasonSuspended,
				"spec.suspend is set: nothing is applied"+rest, 2),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set := running()
			for _, pass := range tc.passes {
				set.Status = Next(set, pass, now)
			}
			want := []metav1.Condition{tc.want}
			if tc.also != "" {
				want = append(want, condition(v1.ConditionReconciling, metav1.ConditionTrue, tc.also, "base is not Ready", 2))
			}
			ignoreTime := cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime")
			if diff := cmp.Diff(want, set.Status.Conditions, ignoreTime); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

// What a run has not written yet is as the last release has left it, however far the run has to go.
func TestStagesThatAreNotReachedStayAsTheyAre(t *testing.T) {
	last := v1.StageStatus{Name: "two", Phase: v1.StageReady, Digest: "sha256:1", Revision: "1"}
	next := v1.StageStatus{Name: "two", Phase: v1.StagePending, Digest: "sha256:2", Revision: "2"}
	never := v1.StageStatus{Name: "two", Phase: v1.StagePending, Digest: "sha256:1", Revision: "1"}
	cases := map[string]struct {
		old   v1.StageStatus
		begun bool
		want  v1.StageStatus
	}{
		"before the first write": {old: last, want: last},
		"after it":               {old: last, begun: true, want: next},
		"never reached":          {old: never, want: next},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set := fresh()
			set.Status.Stages = []v1.StageStatus{tc.old}
			got := Next(set, Outcome{Kind: Progressing, Stages: []v1.StageStatus{next}, Begun: tc.begun}, now).Stages
			if diff := cmp.Diff([]v1.StageStatus{tc.want}, got); diff != "" {
				t.Errorf("stages (-want +got):\n%s", diff)
			}
		})
	}
}

// An idle pass must not write: everything that another pass of the same state says is what is there already.
func TestIdlePassChangesNothing(t *testing.T) {
	at := func(seconds int) *metav1.Time {
		time := metav1.NewTime(now.Add(time.Duration(seconds) * time.Second))
		return &time
	}
	pass := func(began int) Outcome {
		return Outcome{Kind: Succeeded, Message: "done", Revisions: map[string]string{"a/app": "main@sha1:2222222222"},
			Stages: []v1.StageStatus{{
				Name: "one", Phase: v1.StageReady, Digest: "sha256:1", StartedAt: at(began), ReadyAt: at(began + 1),
			}}}
	}
	set := fresh()
	set.Status = Next(set, pass(0), now)
	if diff := cmp.Diff(set.Status, Next(set, pass(60), now.Add(time.Minute))); diff != "" {
		t.Errorf("status (-first +second):\n%s", diff)
	}
	if set.Status.Revision != "main@sha1:22222222" {
		t.Errorf("revision is %q", set.Status.Revision)
	}
}

func TestRequestedAtIsHandled(t *testing.T) {
	set := fresh()
	set.Annotations = map[string]string{v1.AnnotationRequestedAt: "yesterday"}
	if got := Next(set, Outcome{Kind: Suspended}, now).LastHandledReconcileAt; got != "yesterday" {
		t.Errorf("got %q", got)
	}
}

// A stage that was applied again is not applied once more.
func TestRepeatedStageIsRemembered(t *testing.T) {
	set := fresh()
	set.Status = Next(set, Outcome{Kind: Progressing, RepeatedStage: "app@1"}, now)
	if got := Next(set, Outcome{Kind: Succeeded}, now).LastHandledReconcileStage; got != "app@1" {
		t.Errorf("got %q", got)
	}
}

func TestTruncate(t *testing.T) {
	long := strings.Repeat("ü", maxMessage)
	got := Truncate(long)
	if len(got) > maxMessage || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") {
		t.Errorf("got %d bytes, valid %v", len(got), utf8.ValidString(got))
	}
	if got := Truncate("short"); got != "short" {
		t.Errorf("got %q", got)
	}
}

// What a connection calls itself differs with every try, and a status that differs is written and told again.
func TestMessagesAreStable(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"our port": {
			text: "write StageInventory a/b: read tcp 10.0.0.7:48212->10.96.0.1:443: connection reset by peer",
			want: "write StageInventory a/b: read tcp 10.96.0.1:443: connection reset by peer",
		},
		"IPv6": {
			text: "write tcp [fd00::7]:48212->[fd00::1]:443: broken pipe", want: "write tcp [fd00::1]:443: broken pipe",
		},
		"stream": {
			text: "stream error: stream ID 1873; INTERNAL_ERROR", want: "stream error: stream; INTERNAL_ERROR",
		},
		"nothing of the kind": {text: "read tcp://a -> b", want: "read tcp://a -> b"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Truncate(tc.text)); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

// A long message still says what runs.
func TestWhatRunsIsNotCut(t *testing.T) {
	denied := failure.NewStalled(v1.ReasonPolicyViolation, "%s", strings.Repeat("ü", maxMessage))
	next := Next(running(), Outcome{Kind: Failed, Failure: denied}, now)
	for _, condition := range next.Conditions {
		if len(condition.Message) > maxMessage {
			t.Errorf("the message of %s has %d bytes", condition.Type, len(condition.Message))
		}
		if condition.Type == v1.ConditionReady && !strings.HasSuffix(condition.Message, "…; still running main@sha1:11111111") {
			t.Errorf("the message ends with %q", condition.Message[len(condition.Message)-50:])
		}
	}
}

// What is being deleted does not run on.
func TestWhatIsBeingDeletedDoesNotRun(t *testing.T) {
	set := running()
	set.DeletionTimestamp = &metav1.Time{Time: now}
	waiting := failure.NewWaiting(v1.ReasonTerminating, time.Second, "waits for the deletion of ConfigMap a/b")
	for _, condition := range Next(set, Outcome{Kind: Failed, Failure: waiting}, now).Conditions {
		if want := "waits for the deletion of ConfigMap a/b"; condition.Message != want {
			t.Errorf("the message of %s is %q, want %q", condition.Type, condition.Message, want)
		}
	}
}

func TestHistory(t *testing.T) {
	stalled := failure.NewStalled(v1.ReasonApplyFailed, "no")
	waiting := failure.NewWaiting(v1.ReasonHealthCheckTimedOut, 0, "slow")
	of := func(revision string, kind Kind, failed *failure.Error) Outcome {
		return Outcome{Kind: kind, Failure: failed, Revisions: map[string]string{"a/app": revision}}
	}
	succeeds := func(revision string) Outcome { return of(revision, Succeeded, nil) }
	fails := func(revision string) Outcome { return of(revision, Failed, stalled) }
	cases := map[string]struct {
		passes []Outcome
		want   []string // revision, result, and the number of the pass
	}{
		"nothing has ended": {passes: []Outcome{of("1", Progressing, nil), of("1", Failed, waiting), {Kind: Suspended}}},
		"no revision":       {passes: []Outcome{{Kind: Failed, Failure: stalled}}},
		"once":              {passes: []Outcome{succeeds("1"), succeeds("1")}, want: []string{"1 Succeeded 0"}},
		"once, however often it fails": {
			passes: []Outcome{fails("1"), fails("1")}, want: []string{"1 Failed 0"},
		},
		"succeeds after all": {passes: []Outcome{fails("1"), succeeds("1")}, want: []string{"1 Succeeded 1"}},
		"what succeeded does not fail": {
			passes: []Outcome{succeeds("1"), fails("1")}, want: []string{"1 Succeeded 0"},
		},
		"back again": {
			passes: []Outcome{succeeds("1"), fails("2"), succeeds("1")},
			want:   []string{"1 Succeeded 2", "2 Failed 1", "1 Succeeded 0"},
		},
		"no more than five": {
			passes: []Outcome{succeeds("1"), succeeds("2"), succeeds("3"), succeeds("4"), fails("5"), succeeds("5"), succeeds("6")},
			want:   []string{"6 Succeeded 6", "5 Succeeded 5", "4 Succeeded 3", "3 Succeeded 2", "2 Succeeded 1"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set := fresh()
			for number, outcome := range tc.passes {
				set.Status = Next(set, outcome, now.Add(time.Duration(number)*time.Minute))
			}
			var got []string
			for _, entry := range set.Status.History {
				pass := int(entry.FinishedAt.Sub(now).Minutes())
				got = append(got, fmt.Sprintf("%s %s %d", entry.Revisions["a/app"], entry.Result, pass))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("history (-want +got):\n%s", diff)
			}
		})
	}
}

func TestShort(t *testing.T) {
	cases := map[string]struct {
		revisions map[string]string
		want      string
	}{
		"hash is cut":            {revisions: map[string]string{"a/b": "main@sha1:0123456789abcdef"}, want: "main@sha1:01234567"},
		"equal ones once":        {revisions: map[string]string{"a/b": "v1@sha256:1", "a/c": "v1@sha256:1"}, want: "v1@sha256:1"},
		"different ones, sorted": {revisions: map[string]string{"b/b": "two", "a/a": "one"}, want: "one,two"},
		"none":                   {want: ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Short(tc.revisions); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// The status of a custom resource may be as large as etcd takes; ours, which quotes it, must stay writable.
func TestMessagesOfStagesAreCut(t *testing.T) {
	stages := []v1.StageStatus{{Name: "app", Message: strings.Repeat("x", 1<<20)}}
	next := Next(fresh(), Outcome{Kind: Progressing, Stages: stages}, now)
	if got := len(next.Stages[0].Message); got > maxMessage {
		t.Errorf("the message of the stage has %d bytes, want at most %d", got, maxMessage)
	}
}
