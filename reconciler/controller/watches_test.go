package controller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/inventory/store"
)

func TestNewArtifact(t *testing.T) {
	source := func(artifact any) *unstructured.Unstructured {
		// Flux's schema admits the interval, and Flux's types cannot hold it.
		return &unstructured.Unstructured{Object: map[string]any{
			"spec": map[string]any{"interval": "9999999999999h"}, "status": map[string]any{"artifact": artifact},
		}}
	}
	first := map[string]any{"url": "http://a", "digest": "sha256:1", "revision": "main@sha1:1", "lastUpdateTime": "1"}
	cases := map[string]struct {
		old, now any
		want     bool
	}{
		"none":          {},
		"the first":     {now: first, want: true},
		"gone":          {old: first, want: true},
		"the same":      {old: first, now: first},
		"another time":  {old: first, now: map[string]any{"url": "http://a", "digest": "sha256:1", "revision": "main@sha1:1"}},
		"other content": {old: first, now: map[string]any{"url": "http://a", "digest": "sha256:2", "revision": "main@sha1:1"}, want: true},
		"no artifact":   {old: first, now: "forged", want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := newArtifact(event.UpdateEvent{ObjectOld: source(tc.old), ObjectNew: source(tc.now)}); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

// An ExternalArtifact wakes those that name it, and those that name what it is made of, whatever else their kinds have in
// common; also when it begins to point somewhere else.
func TestAnArtifactWakesThoseWhoNameItsProducer(t *testing.T) {
	naming := func(name string, ref v1.SourceReference) client.Object {
		set := &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}}
		set.Spec.Stages = []v1.Stage{{Name: "app", SourceRef: ref}}
		return set
	}
	r := &Reconciler{Client: fake.NewClientBuilder().WithScheme(scheme(t)).WithIndex(&v1.StageSet{}, indexSource, sourcesOf).WithObjects(
		naming("artifact", v1.SourceReference{Name: "made"}),
		naming("producer", v1.SourceReference{APIVersion: "example.com/v1", Kind: "Release", Name: "app"}),
		naming("other", v1.SourceReference{APIVersion: "example.com/v1", Kind: "Build", Name: "app"}),
	).Build()}
	artifact := func(back map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"namespace": "team-a", "name": "made"}, "spec": map[string]any{"sourceRef": back},
		}}
	}
	release := artifact(map[string]any{"kind": "Release", "name": "app"})
	want := []ctrl.Request{
		{NamespacedName: types.NamespacedName{Namespace: "team-a", Name: "artifact"}},
		{NamespacedName: types.NamespacedName{Namespace: "team-a", Name: "producer"}},
	}
	if diff := cmp.Diff(want, r.consumers(v1.SourceKindExternalArtifact)(t.Context(), release)); diff != "" {
		t.Errorf("woken (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[:1], r.consumers(v1.SourceKindExternalArtifact)(t.Context(), artifact(nil))); diff != "" {
		t.Errorf("woken by one that points at nothing (-want +got):\n%s", diff)
	}
	if !newArtifact(event.UpdateEvent{ObjectOld: artifact(nil), ObjectNew: release}) {
		t.Error("that it points somewhere else wakes nobody")
	}
}

// What a dependency's dependants wait for wakes them, and nothing else does.
func TestBecameReady(t *testing.T) {
	dependency := func(change func(*v1.StageSet)) *v1.StageSet {
		set := &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
		set.Status = v1.StageSetStatus{
			ObservedGeneration: 2, LastAppliedRevisions: map[string]string{"team-a/app": "main@sha1:1"},
			Conditions: []metav1.Condition{{
				Type: v1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1.ReasonSucceeded, ObservedGeneration: 2,
			}},
		}
		change(set)
		return set
	}
	same := func(*v1.StageSet) {}
	cases := map[string]struct {
		old, now func(*v1.StageSet)
		want     bool
	}{
		"the same":       {old: same, now: same},
		"another reason": {old: same, now: func(s *v1.StageSet) { s.Status.Conditions[0].Reason = v1.ReasonSourceNotReady }},
		"not ready and still not, at a later generation": {
			old: func(s *v1.StageSet) {
				s.Status.Conditions[0].Status, s.Status.Conditions[0].ObservedGeneration = metav1.ConditionFalse, 1
			},
			now: func(s *v1.StageSet) { s.Status.Conditions[0].Status = metav1.ConditionFalse },
		},
		"ready": {
			old: func(s *v1.StageSet) { s.Status.Conditions[0].Status = metav1.ConditionFalse }, now: same, want: true,
		},
		"ready for the first time": {
			old: func(s *v1.StageSet) { s.Status.Conditions = nil }, now: same, want: true,
		},
		"held, and then ready at what it was held at": {
			old: func(s *v1.StageSet) { s.Status.Conditions[0].ObservedGeneration = 1 }, now: same, want: true,
		},
		"reconciled at its generation": {
			old: func(s *v1.StageSet) { s.Status.ObservedGeneration = 1 }, now: same, want: true,
		},
		"another revision": {
			old: same, now: func(s *v1.StageSet) { s.Status.LastAppliedRevisions["team-a/app"] = "main@sha1:2" }, want: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			update := event.UpdateEvent{ObjectOld: dependency(tc.old), ObjectNew: dependency(tc.now)}
			if got := becameReady(update); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

func TestRelabelled(t *testing.T) {
	namespace := func(labels, annotations map[string]string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", Labels: labels, Annotations: annotations}}
	}
	before := namespace(map[string]string{"a": "b"}, map[string]string{"c": "d"})
	other := before.DeepCopy()
	other.ResourceVersion, other.Finalizers = "2", []string{"f"}
	cases := map[string]struct {
		now  *corev1.Namespace
		want bool
	}{
		"something else":     {now: other},
		"another label":      {now: namespace(map[string]string{"a": "x"}, before.Annotations), want: true},
		"no labels":          {now: namespace(nil, before.Annotations), want: true},
		"another annotation": {now: namespace(before.Labels, map[string]string{"c": "x"}), want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := relabelled(event.UpdateEvent{ObjectOld: before, ObjectNew: tc.now}); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

func TestWanted(t *testing.T) {
	before := &v1.StageSet{ObjectMeta: metav1.ObjectMeta{
		Generation: 1, Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"},
	}}
	cases := map[string]struct {
		change func(*v1.StageSet)
		want   bool
	}{
		"a status":           {change: func(set *v1.StageSet) { set.Status.ObservedGeneration, set.ResourceVersion = 1, "2" }},
		"a finalizer":        {change: func(set *v1.StageSet) { set.Finalizers = []string{v1.Finalizer} }},
		"another annotation": {change: func(set *v1.StageSet) { set.Annotations["c"] = "x" }},
		"a spec":             {change: func(set *v1.StageSet) { set.Generation = 2 }, want: true},
		"a label":            {change: func(set *v1.StageSet) { set.Labels["a"] = "x" }, want: true},
		"a deletion":         {change: func(set *v1.StageSet) { set.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, want: true},
		"a request":          {change: func(set *v1.StageSet) { set.Annotations[v1.AnnotationRequestedAt] = "now" }, want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			now := before.DeepCopy()
			tc.change(now)
			if got := wanted(event.UpdateEvent{ObjectOld: before, ObjectNew: now}); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1.AddToScheme, corev1.AddToScheme} {
		if err := add(known); err != nil {
			t.Fatal(err)
		}
	}
	return known
}

func TestANamespaceWakesItsStageSets(t *testing.T) {
	in := func(namespace, name string) client.Object {
		return &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	r := &Reconciler{Client: fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(
		in("team-a", "one"), in("team-a", "two"), in("team-b", "three")).Build()}
	got := r.residents(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}})
	want := []ctrl.Request{
		{NamespacedName: types.NamespacedName{Namespace: "team-a", Name: "one"}},
		{NamespacedName: types.NamespacedName{Namespace: "team-a", Name: "two"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("woken (-want +got):\n%s", diff)
	}
}

// A cache that lags is no missing Namespace (P-21): it is read once more before a policy is decided without it.
func TestANamespaceThatTheCacheDoesNotShowIsRead(t *testing.T) {
	set := &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "app"}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", Labels: map[string]string{"a": "b"}}}
	cached := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(set).
		WithIndex(&v1.StageInventory{}, store.IndexStageSet, store.StageSetOf).Build()
	for name, live := range map[string][]client.Object{"lags": {namespace}, "there is none": nil} {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler{
				Client: cached, Store: store.New(cached),
				Live: fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(live...).Build(),
			}
			snap, err := r.snapshot(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(set)})
			if err != nil {
				t.Fatal(err)
			}
			if got := snap.namespace != nil && snap.namespace.Labels["a"] == "b"; got != (len(live) > 0) {
				t.Errorf("the Namespace is %v", snap.namespace)
			}
		})
	}
}
