package failure

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/stageset/stageset/api/v1"
)

func TestFrom(t *testing.T) {
	known := NewWaiting(v1.ReasonSourceNotReady, time.Second, "no artifact")
	if got := From(fmt.Errorf("stage app: %w", known)); got != known {
		t.Errorf("the failure in the chain was not found: %v", got)
	}
	unforeseen := From(errors.New("boom"))
	if unforeseen.Reason != v1.ReasonApplyFailed || unforeseen.Kind != Transient || unforeseen.Error() != "boom" {
		t.Errorf("got %+v, want a transient ApplyFailed", unforeseen)
	}
}

func TestInStageNamesTheFirstStageOnly(t *testing.T) {
	once := NewStalled(v1.ReasonBuildFailed, "bad").InStage("app")
	if got := once.InStage("other").Stage; got != "app" {
		t.Errorf("got stage %q, want app", got)
	}
}

func TestJoin(t *testing.T) {
	stalled := NewStalled(v1.ReasonServiceAccountRequired, "stage a has none").InStage("a")
	transient := NewTransient(v1.ReasonTargetUnreachable, "stage b: timeout").InStage("b")
	cases := map[string]struct {
		errs []error
		want *Error
		text string
	}{
		"nothing":        {errs: []error{nil, nil}},
		"one is itself":  {errs: []error{nil, stalled}, want: stalled, text: "stage a has none"},
		"same text once": {errs: []error{stalled, stalled}, want: stalled, text: "stage a has none"},
		// What may go away by itself is retried soon, although the rest has to be mended.
		"all texts, the first reason, the most hopeful kind": {
			errs: []error{stalled, transient},
			want: &Error{Reason: v1.ReasonServiceAccountRequired, Kind: Transient, Stage: "a"},
			text: "stage a has none; stage b: timeout",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := Join(tc.errs...)
			if tc.want == nil {
				if err != nil {
					t.Fatalf("got %v, want nil", err)
				}
				return
			}
			got := From(err)
			if got.Reason != tc.want.Reason || got.Kind != tc.want.Kind || got.Stage != tc.want.Stage {
				t.Errorf("got %s/%s in %q, want %s/%s in %q",
					got.Reason, got.Kind, got.Stage, tc.want.Reason, tc.want.Kind, tc.want.Stage)
			}
			if diff := cmp.Diff(tc.text, got.Error()); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
		})
	}
}
