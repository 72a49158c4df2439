package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Timeout bounds every wait of this package: far longer than anything takes on an idle machine, so that a busy one
// fails no test. A test that is about time measures it.
const Timeout = time.Minute

const (
	pollInterval   = 50 * time.Millisecond
	cleanupTimeout = 30 * time.Second
	noProgress     = 5 * time.Minute
)

// Predicate says what an object still lacks; nil when it lacks nothing.
type Predicate func(*unstructured.Unstructured) error

// Ref names an object for WaitFor and WaitGone. The namespace of a cluster-scoped one is empty.
func Ref(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(apiVersion)
	object.SetKind(kind)
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

// WaitFor waits until the object exists and all predicates hold at once, and returns it as it is then. The test fails
// after Timeout, with the object in its log.
func (c *Cluster) WaitFor(t testing.TB, ref client.Object, predicates ...Predicate) *unstructured.Unstructured {
	t.Helper()
	live := c.identity(t, ref)
	err := poll(t.Context(), func(ctx context.Context) error {
		if err := c.client.Get(ctx, client.ObjectKeyFromObject(live), live); err != nil {
			return err
		}
		return check(live, predicates)
	})
	if err != nil {
		t.Fatalf("waiting for %s: %v\n%s", describe(live), err, asYAML(live))
	}
	return live
}

// WaitGone waits until the object does not exist. The test fails after Timeout, with the object in its log.
func (c *Cluster) WaitGone(t testing.TB, ref client.Object) {
	t.Helper()
	live := c.identity(t, ref)
	err := poll(t.Context(), func(ctx context.Context) error {
		err := c.client.Get(ctx, client.ObjectKeyFromObject(live), live)
		if err == nil {
			return errors.New("it still exists")
		}
		return client.IgnoreNotFound(err)
	})
	if err != nil {
		t.Fatalf("waiting for %s to be gone: %v\n%s", describe(live), err, asYAML(live))
	}
}

// Eventually waits until the check returns nil. The test fails after Timeout with the check's last error.
func Eventually(t testing.TB, check func(ctx context.Context) error) {
	t.Helper()
	if err := poll(t.Context(), check); err != nil {
		t.Fatal(err)
	}
}

// Progressing waits like Eventually, but as long as the check's error changes: the test fails when it has been the same for five
// minutes. It is for much work, of which the error says how far it is.
func Progressing(t testing.TB, check func(ctx context.Context) error) {
	t.Helper()
	said, since := "", time.Now()
	err := wait.PollUntilContextCancel(t.Context(), pollInterval, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		switch {
		case err == nil:
			return true, nil
		case err.Error() != said:
			said, since = err.Error(), time.Now()
		case time.Since(since) > noProgress:
			return false, fmt.Errorf("nothing has changed for %s: %w", noProgress, err)
		}
		return false, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Condition holds when the object has a condition of that type and status, observed at its present generation where
// the object tells, and, if reasons are given, with one of them.
func Condition(conditionType, status string, reasons ...string) Predicate {
	return func(object *unstructured.Unstructured) error {
		want := fmt.Sprintf("condition %s=%s", conditionType, status)
		if len(reasons) > 0 {
			want += fmt.Sprintf(" %v", reasons)
		}
		observed, found, err := unstructured.NestedInt64(object.Object, "status", "observedGeneration")
		if err != nil {
			return err
		}
		if found && observed != object.GetGeneration() {
			return fmt.Errorf("no %s: generation %d is observed, %d is there", want, observed, object.GetGeneration())
		}
		conditions, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
		if err != nil {
			return err
		}
		for _, item := range conditions {
			condition, ok := item.(map[string]any)
			if !ok || condition["type"] != conditionType {
				continue
			}
			if condition["status"] == status && matches(reasons, condition["reason"]) {
				return nil
			}
			return fmt.Errorf("no %s: it is %v (%v): %v", want, condition["status"], condition["reason"], condition["message"])
		}
		return fmt.Errorf("no %s: there is no such condition", want)
	}
}

func matches(reasons []string, reason any) bool {
	for _, allowed := range reasons {
		if allowed == reason {
			return true
		}
	}
	return len(reasons) == 0
}

// identity is an empty object with the kind and name of the given one.
func (c *Cluster) identity(t testing.TB, ref client.Object) *unstructured.Unstructured {
	t.Helper()
	kind, err := c.client.GroupVersionKindFor(ref)
	if err != nil {
		t.Fatal(err)
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(kind)
	live.SetNamespace(ref.GetNamespace())
	live.SetName(ref.GetName())
	return live
}

func check(object *unstructured.Unstructured, predicates []Predicate) error {
	for _, predicate := range predicates {
		if err := predicate(object); err != nil {
			return err
		}
	}
	return nil
}

// poll repeats the check until it returns nil and returns its last error otherwise.
func poll(ctx context.Context, check func(ctx context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, Timeout, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if err == nil || last == nil || !errors.Is(err, context.DeadlineExceeded) {
			last = err
		}
		return err == nil, nil
	})
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w (gave up: %w)", last, err)
}

func describe(object client.Object) string {
	return fmt.Sprintf("%s %s", object.GetObjectKind().GroupVersionKind().Kind, client.ObjectKeyFromObject(object))
}

// asYAML is the object without the fields that only machines read.
func asYAML(object *unstructured.Unstructured) string {
	if object.GetResourceVersion() == "" {
		return "(it does not exist)"
	}
	object = object.DeepCopy()
	object.SetManagedFields(nil)
	content, err := yaml.Marshal(object.Object)
	if err != nil {
		return err.Error()
	}
	return string(content)
}
