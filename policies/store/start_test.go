package store

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/stageset/stageset/policies"
)

var configMap = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

// mapper knows ConfigMaps, unless fail says why it cannot tell. It counts who asks.
type mapper struct {
	meta.RESTMapper
	fail  atomic.Pointer[error]
	asked atomic.Int32
}

func (m *mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	m.asked.Add(1)
	if err := m.fail.Load(); err != nil {
		return nil, *err
	}
	known := meta.NewDefaultRESTMapper(nil)
	known.Add(configMap, meta.RESTScopeNamespace)
	return known.RESTMapping(kind, versions...)
}

// starting are parameters of which no watch has begun yet, with the ConfigMap limits.
func starting() (*watch, *mapper, *testingclock.FakeClock) {
	limits := &unstructured.Unstructured{}
	limits.SetGroupVersionKind(configMap)
	limits.SetNamespace("team-a")
	limits.SetName("limits")
	knows, at := &mapper{}, testingclock.NewFakeClock(time.Now())
	w := newWatch(selection{kind: configMap, name: "limits"}, Options{
		Mapper: knows, Clock: at, Dynamic: fake.NewSimpleDynamicClient(runtime.NewScheme(), limits), Logger: logr.Discard(),
	}, func() {})
	return w, knows, at
}

var ofTeamA = policies.ParamQuery{Kind: configMap, Namespace: "team-a", Name: "limits"}

// P-14: who asks before the watch has begun is answered by the API server.
func TestParamsBeforeTheWatchBegins(t *testing.T) {
	w, _, _ := starting()
	found, err := w.find(t.Context(), ofTeamA)
	if err != nil || len(found) != 1 {
		t.Fatalf("found %v, %v", found, err)
	}
}

// Why it is not known whether a kind is served is said, and it is looked for again a moment later.
func TestParamsWhenDiscoveryFails(t *testing.T) {
	w, knows, at := starting()
	down := errors.New("the API server is down")
	knows.fail.Store(&down)
	for range 10 {
		if _, err := w.find(t.Context(), ofTeamA); err == nil || !strings.Contains(err.Error(), down.Error()) {
			t.Fatalf("got %v, want that the API server is down", err)
		}
	}
	if asked := knows.asked.Load(); asked != 1 {
		t.Errorf("it was asked %d times in one moment", asked)
	}
	knows.fail.Store(nil)
	at.Step(answerLife)
	if found, err := w.find(t.Context(), ofTeamA); err != nil || len(found) != 1 {
		t.Errorf("found %v, %v", found, err)
	}
}

// A kind that nobody serves is looked for now and then, and not for each evaluation.
func TestParamsOfAKindThatIsNotServed(t *testing.T) {
	w, knows, _ := starting()
	w.kind.Kind = "Limit"
	for range 10 {
		if _, err := w.find(t.Context(), ofTeamA); err == nil || !strings.Contains(err.Error(), "is not served") {
			t.Fatalf("got %v, want that it is not served", err)
		}
	}
	if asked := knows.asked.Load(); asked != 1 {
		t.Errorf("it was looked for %d times in one moment", asked)
	}
}
