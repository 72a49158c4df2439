// Package failure is the one error type of the reconciler: an error that carries the condition reason it leads to and says
// what can be expected of a retry. It also has how messages are cut, and count what they leave out. It never looks at
// message texts to decide anything.
package failure

import (
	"errors"
	"fmt"
	"time"

	v1 "github.com/stageset/stageset/api/v1"
)

// Kind says what can be expected of trying again.
type Kind int

const (
	// Transient: the same pass may succeed later by itself; it is retried with a growing pause.
	Transient Kind = iota
	// Waiting: something else has to happen first; it is looked at again after RetryAfter, or when a watch says so.
	Waiting
	// Stalled: nothing will change without somebody's change; it is still retried after the StageSet's retryInterval, because
	// permissions, registries and CRDs get repaired without the StageSet changing.
	Stalled
)

// String is the kind as logs and metrics have it.
func (k Kind) String() string {
	switch k {
	case Waiting:
		return "Waiting"
	case Stalled:
		return "Stalled"
	default:
		return "Transient"
	}
}

// Error is a failure of a pass. Its text is meant for the owner of the StageSet: it names the object and what to do, is
// stable from pass to pass, and holds no value of a Secret.
type Error struct {
	// Reason is the reason of the Ready condition, one of the constants of api/v1.
	Reason string
	// Kind says what can be expected of trying again.
	Kind Kind
	// Stage is the stage that failed; empty when it is the StageSet as a whole.
	Stage string
	// RetryAfter is when a Waiting failure is looked at again; zero leaves it to watches and the interval.
	RetryAfter time.Duration
	// Err is the cause; its text is the message.
	Err error
}

// Error is the text of the cause.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// InStage is a copy of e that names the stage it happened in, unless it names one already.
func (e *Error) InStage(stage string) *Error {
	named := *e
	if named.Stage == "" {
		named.Stage = stage
	}
	return &named
}

// NewTransient is a failure that may go away by itself. The format is fmt.Errorf's.
func NewTransient(reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Kind: Transient, Err: fmt.Errorf(format, args...)}
}

// NewWaiting is a failure that waits for something; after is when to look again, zero for "when a watch says so".
func NewWaiting(reason string, after time.Duration, format string, args ...any) *Error {
	return &Error{Reason: reason, Kind: Waiting, RetryAfter: after, Err: fmt.Errorf(format, args...)}
}

// NewStalled is a failure that somebody has to mend.
func NewStalled(reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Kind: Stalled, Err: fmt.Errorf(format, args...)}
}

// From finds the *Error in err's chain. An error that carries none is a fault nobody foresaw: Transient, ApplyFailed.
func From(err error) *Error {
	var failed *Error
	if errors.As(err, &failed) {
		return failed
	}
	return &Error{Reason: v1.ReasonApplyFailed, Kind: Transient, Err: err}
}
