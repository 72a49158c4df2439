package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/stageset/stageset/policies"
)

// large is a ConfigMap of a mebibyte with the label that many selects.
func large(namespace, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"text": strings.Repeat("x", 1<<20)}}}
	object.SetGroupVersionKind(configMap)
	object.SetNamespace(namespace)
	object.SetName(name)
	object.SetLabels(map[string]string{"limits": "yes"})
	return object
}

// many follows ConfigMaps of all namespaces.
func many(objects ...runtime.Object) (*watch, *fake.FakeDynamicClient) {
	direct := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		{Version: "v1", Resource: "configmaps"}: "ConfigMapList",
	}, objects...)
	return newWatch(selection{kind: configMap, selector: "limits=yes"}, Options{
		Mapper: &mapper{}, Clock: testingclock.NewFakeClock(time.Now()), Dynamic: direct, Logger: logr.Discard(),
	}, func() {}), direct
}

func manyOf(namespace string) policies.ParamQuery {
	selector, _ := labels.Parse("limits=yes")
	return policies.ParamQuery{Kind: configMap, Namespace: namespace, Selector: selector}
}

// What is too much is not watched, but found when it is asked for.
func TestTooMuchIsNotWatched(t *testing.T) {
	var objects []runtime.Object
	for i := range maxWatchedBytes>>20 + 1 {
		objects = append(objects, large(fmt.Sprintf("n%d", i), "limits"))
	}
	w, _ := many(objects...)
	if _, err := w.follow(t.Context(), logr.Discard()); !errors.Is(err, errTooMuch) {
		t.Fatalf("got %v, want that it is too much", err)
	}
	found, err := w.find(t.Context(), manyOf("n7"))
	if err != nil || len(found) != 1 || found[0].GetNamespace() != "n7" {
		t.Errorf("found %d, %v", len(found), err)
	}
}

// What becomes too much is not watched any longer.
func TestWhatBecomesTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, direct := many()
		ended := make(chan error, 1)
		go func() {
			_, err := w.follow(t.Context(), logr.Discard())
			ended <- err
		}()
		synctest.Wait() // it watches
		maps := direct.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"})
		for i := 1; len(ended) == 0; i++ {
			if i > maxWatchedBytes>>20 {
				t.Fatalf("%d MiB are watched", i)
			}
			object := large(fmt.Sprintf("n%d", i), "limits")
			if _, err := maps.Namespace(object.GetNamespace()).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if err := <-ended; !errors.Is(err, errTooMuch) {
			t.Errorf("got %v, want that it is too much", err)
		}
	})
}

// Answers of many namespaces are not kept beyond what is bounded, nor longer than they are used.
func TestAnswersAreBounded(t *testing.T) {
	var objects []runtime.Object
	for i := range 2 * maxAnswerBytes >> 20 {
		objects = append(objects, large(fmt.Sprintf("n%d", i), "limits"))
	}
	w, _ := many(objects...)
	for i := range objects {
		if _, err := w.find(t.Context(), manyOf(fmt.Sprintf("n%d", i))); err != nil {
			t.Fatal(err)
		}
		kept := 0
		for _, said := range w.answers {
			kept += weigh(said.objects)
		}
		if kept > maxAnswerBytes {
			t.Fatalf("%d bytes are kept after %d answers", kept, i+1)
		}
	}
	w.options.Clock.(*testingclock.FakeClock).Step(answerLife)
	if _, err := w.find(t.Context(), manyOf("n0")); err != nil {
		t.Fatal(err)
	}
	if len(w.answers) != 1 {
		t.Errorf("%d answers are kept, want that which is used", len(w.answers))
	}
}

// What is too large to be read is no parameter: failurePolicy decides.
func TestParamsThatAreTooLarge(t *testing.T) {
	var objects []runtime.Object
	for i := range maxAnswerBytes>>20 + 1 {
		objects = append(objects, large("team-a", fmt.Sprintf("limits-%d", i)))
	}
	w, _ := many(objects...)
	if _, err := w.find(t.Context(), manyOf("team-a")); !errors.Is(err, errTooLarge) {
		t.Errorf("got %v, want that they are too large", err)
	}
}
