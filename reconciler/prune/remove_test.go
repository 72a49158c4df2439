package prune

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/ownership"
	"github.com/stageset/stageset/reconciler/tenant"
)

var (
	shop = ownership.Owner{Namespace: "team-a", Name: "shop"}
	noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
)

// answers is a target that has objects by name, and answers deletes with an error by name.
type answers struct {
	objects map[string]*unstructured.Unstructured
	errs    map[string]error
	deleted []string
	// lacks is a verb that the account has no permission for.
	lacks string
	// ended is a version that is served no more; others are.
	ended string
}

func (a *answers) Get(_ context.Context, gvk schema.GroupVersionKind, _, name string) (*unstructured.Unstructured, error) {
	if gvk.Version == a.ended {
		return nil, a.noMatch(gvk)
	}
	if found := a.objects[name]; found != nil {
		return found, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
}

func (a *answers) Delete(
	_ context.Context, _ schema.GroupVersionKind, _, name string, options tenant.DeleteOptions,
) (bool, error) {
	if live := a.objects[name]; options.UID != live.GetUID() || options.ResourceVersion != live.GetResourceVersion() {
		return false, errors.New("the preconditions are not those of the object that was read")
	}
	if err := a.errs[name]; err != nil {
		return false, err
	}
	a.deleted = append(a.deleted, name)
	return len(a.objects[name].GetFinalizers()) == 0, nil
}

func (a *answers) May(_ context.Context, verb string, gvk schema.GroupVersionKind, _, _ string) (bool, error) {
	if gvk.Version == a.ended {
		return false, a.noMatch(gvk)
	}
	return verb != a.lacks, nil
}

func (a *answers) noMatch(gvk schema.GroupVersionKind) error {
	return &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
}

func (a *answers) Version(context.Context, schema.GroupKind) (string, error) { return "v1", nil }

func object(change func(*unstructured.Unstructured)) *unstructured.Unstructured {
	live := &unstructured.Unstructured{Object: map[string]any{}}
	live.SetUID("1")
	live.SetResourceVersion("7")
	change(live)
	return live
}

// deletedAt has a finalizer, and was asked to go some seconds after noon, with a grace period.
func deletedAt(seconds, grace int64) func(*unstructured.Unstructured) {
	return func(live *unstructured.Unstructured) {
		live.SetDeletionTimestamp(ptr.To(metav1.NewTime(noon.Add(time.Duration(seconds+grace) * time.Second))))
		live.SetDeletionGracePeriodSeconds(&grace)
		live.SetFinalizers([]string{"hold"})
	}
}

func applied(name string) v1.InventoryEntry {
	return v1.InventoryEntry{
		Version: "v1", Kind: "ConfigMap", Namespace: "team-a", Name: name, UID: "1", ResourceVersion: "7", RenderedHash: "h",
	}
}

// I4, T-70, T-73: each entry has one fate, and what waits is waited for since its last deletion was asked for.
func TestRun(t *testing.T) {
	as := func(manager ownership.Owner) func(*unstructured.Unstructured) {
		return func(live *unstructured.Unstructured) {
			live.SetManagedFields([]metav1.ManagedFieldsEntry{
				{Manager: manager.FieldManager(), Operation: metav1.ManagedFieldsOperationApply},
			})
			live.SetLabels(map[string]string{v1.LabelNamespace: manager.Namespace, v1.LabelName: manager.Name})
		}
	}
	plain := func(*unstructured.Unstructured) {}
	held := func(live *unstructured.Unstructured) { live.SetFinalizers([]string{"hold"}) }
	annotated := func(live *unstructured.Unstructured) {
		live.SetAnnotations(map[string]string{v1.AnnotationPrune: v1.PruneDisabled})
	}
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "a", errors.New("written"))
	kept := applied("a")
	kept.Keep = true
	cases := map[string]struct {
		live    map[string]func(*unstructured.Unstructured)
		entries []v1.InventoryEntry
		err     error
		want    Outcome
		deleted []string
	}{
		"goes": {
			live: map[string]func(*unstructured.Unstructured){"a": plain}, entries: []v1.InventoryEntry{applied("a")},
			want: Outcome{Gone: keys("a")}, deleted: []string{"a"},
		},
		"is gone": {entries: []v1.InventoryEntry{applied("a")}, want: Outcome{Gone: keys("a")}},
		"kept by its annotation": {
			live: map[string]func(*unstructured.Unstructured){"a": annotated}, entries: []v1.InventoryEntry{applied("a")},
			want: Outcome{Kept: keys("a")},
		},
		"kept by what was applied": {
			live: map[string]func(*unstructured.Unstructured){"a": plain}, entries: []v1.InventoryEntry{kept},
			want: Outcome{Kept: keys("a")},
		},
		"another StageSet has applied it since": {
			live:    map[string]func(*unstructured.Unstructured){"a": as(ownership.Owner{Namespace: "team-a", Name: "other"})},
			entries: []v1.InventoryEntry{applied("a")}, want: Outcome{Gone: keys("a")},
		},
		"was made anew, with our labels": {
			live: map[string]func(*unstructured.Unstructured){"a": func(live *unstructured.Unstructured) {
				as(shop)(live)
				live.SetUID("2")
			}},
			entries: []v1.InventoryEntry{applied("a")}, want: Outcome{Doubtful: keys("a")},
		},
		"was made anew, with another's labels": {
			live: map[string]func(*unstructured.Unstructured){"a": func(live *unstructured.Unstructured) {
				as(ownership.Owner{Namespace: "team-a", Name: "other"})(live)
				live.SetUID("2")
			}},
			entries: []v1.InventoryEntry{applied("a")}, want: Outcome{Gone: keys("a")},
		},
		"has only just been asked to go": {
			live:    map[string]func(*unstructured.Unstructured){"a": held, "b": deletedAt(0, 0)},
			entries: []v1.InventoryEntry{applied("a"), applied("b")}, want: Outcome{Waiting: keys("a", "b")}, deleted: []string{"a"},
		},
		"waits": {
			live:    map[string]func(*unstructured.Unstructured){"a": deletedAt(0, 0), "b": deletedAt(5, 30), "c": deletedAt(2, 60)},
			entries: []v1.InventoryEntry{applied("a"), applied("b"), applied("c")},
			want:    Outcome{Waiting: keys("a", "b", "c"), Since: noon.Add(5 * time.Second)},
		},
		"was written meanwhile": {
			live: map[string]func(*unstructured.Unstructured){"a": plain}, entries: []v1.InventoryEntry{applied("a")}, err: conflict,
			want: Outcome{Waiting: keys("a")},
		},
		"refused": {
			live: map[string]func(*unstructured.Unstructured){"a": plain}, entries: []v1.InventoryEntry{applied("a")},
			err: errors.New("no"), want: Outcome{Failed: []Failure{{Key: keys("a")[0], Err: errors.New("no")}}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			target := &answers{objects: map[string]*unstructured.Unstructured{}, errs: map[string]error{}}
			for name, change := range tc.live {
				target.objects[name] = object(change)
				target.errs[name] = tc.err
			}
			got := Run(t.Context(), target, shop, Step{Entries: tc.entries}, 1)
			byText := cmp.Comparer(func(a, b error) bool { return a.Error() == b.Error() })
			if diff := cmp.Diff(tc.want, got, byText, cmpopts.EquateApproxTime(0)); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.deleted, target.deleted); diff != "" {
				t.Errorf("deleted (-want +got):\n%s", diff)
			}
		})
	}
}

func keys(names ...string) []inventory.Key {
	var keys []inventory.Key
	for _, name := range names {
		keys = append(keys, inventory.EntryKey(applied(name)))
	}
	return keys
}

// T-74: what a policy denies is told apart from what the account may not do.
func TestWhoForbidsADelete(t *testing.T) {
	plain := object(func(*unstructured.Unstructured) {})
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "a", errors.New("no"))
	for name, tc := range map[string]struct {
		err    error
		lacks  string
		ended  string
		denied bool
	}{
		"a policy":                              {err: forbidden, denied: true},
		"a policy, after the version ended":     {err: forbidden, ended: "v1beta1", denied: true},
		"the account has no right to delete":    {err: forbidden, lacks: "delete"},
		"the account has no right to look":      {err: forbidden, lacks: "get"},
		"nobody: the server does not delete it": {err: errors.New("no")},
	} {
		t.Run(name, func(t *testing.T) {
			target := &answers{
				objects: map[string]*unstructured.Unstructured{"a": plain}, errs: map[string]error{"a": tc.err}, lacks: tc.lacks, ended: tc.ended,
			}
			entry := applied("a")
			if tc.ended != "" {
				entry.Version = tc.ended
			}
			outcome := Run(t.Context(), target, shop, Step{Entries: []v1.InventoryEntry{entry}}, 1)
			if len(outcome.Failed) != 1 || outcome.Failed[0].Denied != tc.denied {
				t.Errorf("failed %+v, want one, with Denied %t", outcome.Failed, tc.denied)
			}
		})
	}
}

// What an object names goes after the object, and not before it is gone; kinds go in the reverse of the order in which they
// are applied.
func TestOrderOfDeletion(t *testing.T) {
	named := func(kind, name, names string, held bool) (v1.InventoryEntry, *unstructured.Unstructured) {
		entry := applied(name)
		entry.Kind = kind
		return entry, object(func(live *unstructured.Unstructured) {
			if names != "" {
				live.SetAnnotations(map[string]string{v1.AnnotationDependsOn: "/namespaces/team-a/" + names})
			}
			if held {
				live.SetFinalizers([]string{"hold"})
			}
		})
	}
	for name, tc := range map[string]struct {
		// objects are "Kind name", with " -> Kind/name" that it names, and " (held)" by a finalizer.
		objects []string
		want    []string
		waiting []inventory.Key
	}{
		"by kind": {
			objects: []string{"Namespace ns", "ConfigMap config", "Pod web"}, want: []string{"web", "config", "ns"},
		},
		"by what they name": {
			objects: []string{"ConfigMap c -> ConfigMap/b", "ConfigMap b -> Pod/a", "Pod a"}, want: []string{"c", "b", "a"},
		},
		"held by what names it": {
			objects: []string{"ConfigMap c -> ConfigMap/b", "ConfigMap b -> ConfigMap/a (held)", "ConfigMap a", "ConfigMap d"},
			want:    []string{"c", "b", "d"}, waiting: keys("b"),
		},
		"in a circle":      {objects: []string{"ConfigMap a -> ConfigMap/b", "ConfigMap b -> ConfigMap/a"}, want: []string{"a", "b"}},
		"what is not here": {objects: []string{"ConfigMap a -> ConfigMap/other", "ConfigMap b -> nothing"}, want: []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			target := &answers{objects: map[string]*unstructured.Unstructured{}, errs: map[string]error{}}
			var step Step
			for _, text := range tc.objects {
				text, held := strings.CutSuffix(text, " (held)")
				text, names, _ := strings.Cut(text, " -> ")
				kind, name, _ := strings.Cut(text, " ")
				entry, live := named(kind, name, names, held)
				step.Entries, target.objects[name] = append(step.Entries, entry), live
			}
			outcome := Run(t.Context(), target, shop, step, 1)
			if diff := cmp.Diff(tc.want, target.deleted); diff != "" {
				t.Errorf("deleted (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.waiting, outcome.Waiting); diff != "" {
				t.Errorf("waiting (-want +got):\n%s", diff)
			}
		})
	}
}
