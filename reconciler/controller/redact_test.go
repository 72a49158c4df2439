package controller

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/status"
)

// I8: no text of an outcome goes past what takes the values of Secrets out, and nothing but texts changes.
func TestRedacted(t *testing.T) {
	without := func(text string) string { return strings.ReplaceAll(text, "canary", "[…]") }
	refused := failure.NewStalled(v1.ReasonApplyFailed, "canary is invalid").InStage("app")
	ended := outcome{Outcome: status.Outcome{
		Kind: status.Failed, Failure: refused, Message: "canary", CurrentStage: "app",
		Stages:  []v1.StageStatus{{Name: "app", Message: "waits for canary"}},
		Running: failure.NewWaiting(v1.ReasonProgressing, 0, "waits for canary"),
	}}
	got := ended.redacted(without)
	if got.Failure.Error() != "[…] is invalid" || got.Failure.Reason != v1.ReasonApplyFailed || got.Failure.Stage != "app" {
		t.Errorf("failure %+v", got.Failure)
	}
	if diff := cmp.Diff([]string{"[…]", "waits for […]", "waits for […]"},
		[]string{got.Message, got.Stages[0].Message, got.Running.Error()}); diff != "" {
		t.Errorf("texts (-want +got):\n%s", diff)
	}
	if ended.Stages[0].Message != "waits for canary" || ended.Running.Error() != "waits for canary" || refused.Error() != "canary is invalid" {
		t.Error("the outcome itself was changed")
	}
	if got := (outcome{}).redacted(without); got.Failure != nil || got.Stages != nil {
		t.Errorf("an empty outcome became %+v", got)
	}
}
