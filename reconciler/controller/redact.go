package controller

import (
	"errors"
	"slices"
)

// redacted is the outcome with every text as without returns it. Status, events and the log are made of these texts alone.
func (o outcome) redacted(without func(string) string) outcome {
	o.Message = without(o.Message)
	if o.Failure != nil {
		failure := *o.Failure
		failure.Err = errors.New(without(failure.Error()))
		o.Failure = &failure
	}
	o.Stages = slices.Clone(o.Stages)
	for i := range o.Stages {
		o.Stages[i].Message = without(o.Stages[i].Message)
	}
	return o
}
