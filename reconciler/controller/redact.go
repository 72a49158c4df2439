package controller

import (
	"context"
	"errors"
	"slices"
)

// redact is a text without the values of Secrets that the pass has come to know. Status, events and the log are made of
// texts that went through it when the pass is concluded.
func (s *snapshot) redact(text string) string {
	for _, without := range s.without {
		text = without(text)
	}
	return text
}

// hide has redact take out the values of Secrets that the StageSet substitutes, as they are now: what API servers, webhooks and
// objects say may quote any field of an object. It is for passes that have not read them for a release. Its error says that
// some cannot be read any more.
func (r *Reconciler) hide(ctx context.Context, snap *snapshot) error {
	without, err := r.Pipeline.Redactor(ctx, snap.effective)
	if err == nil {
		snap.without = append(snap.without, without)
	}
	return err
}

// redacted is the outcome with every text as without returns it.
func (o outcome) redacted(without func(string) string) outcome {
	o.Message = without(o.Message)
	if o.Failure != nil {
		failure := *o.Failure
		failure.Err = redacted(failure.Err, without)
		o.Failure = &failure
	}
	if o.Running != nil {
		running := *o.Running
		running.Err = redacted(running.Err, without)
		o.Running = &running
	}
	o.Stages = slices.Clone(o.Stages)
	for i := range o.Stages {
		o.Stages[i].Message = without(o.Stages[i].Message)
	}
	return o
}

func redacted(err error, without func(string) string) error { return errors.New(without(err.Error())) }
