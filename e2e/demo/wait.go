package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	patience     = time.Minute // with what takes a second
	pollInterval = 50 * time.Millisecond
)

// waitFor reads an object until the check finds nothing that is missing.
func (a *admin) waitFor(ctx context.Context, object *unstructured.Unstructured, check func() error) error {
	return await(ctx, describe(object), patience, func(ctx context.Context) error {
		if err := a.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		return check()
	})
}

// await repeats a check until it finds nothing wrong, and returns what it found last otherwise.
func await(ctx context.Context, what string, within time.Duration, check func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, within, true, func(ctx context.Context) (bool, error) {
		if err := check(ctx); ctx.Err() == nil || last == nil {
			last = err // and not that the time is over
		}
		return last == nil, nil
	})
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("waited %s for %s: %w", within, what, last)
}

// condition is the condition of that type, with an empty status where there is none.
func condition(object *unstructured.Unstructured, kind string) metav1.Condition {
	var status struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &status); err != nil {
		return metav1.Condition{Message: err.Error()}
	}
	if found := meta.FindStatusCondition(status.Status.Conditions, kind); found != nil {
		return *found
	}
	return metav1.Condition{Message: "there is no condition " + kind + " yet"}
}

// hasCondition waits for a condition to be true.
func (a *admin) hasCondition(ctx context.Context, object *unstructured.Unstructured, kind string) error {
	return a.waitFor(ctx, object, func() error {
		if found := condition(object, kind); found.Status != metav1.ConditionTrue {
			return fmt.Errorf("not %s: %s", kind, found.Message)
		}
		return nil
	})
}
