package preflight

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stageset/stageset/reconciler/drift"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/ownership"
	"github.com/stageset/stageset/reconciler/tenant"
)

// script is a target in which somebody else writes at the moments that a test needs: what each read and each dry-run finds,
// in order. A nil object does not exist.
type script struct {
	Target
	reads, answers []*unstructured.Unstructured
}

func (s *script) Get(_ context.Context, gvk schema.GroupVersionKind, _, name string) (*unstructured.Unstructured, error) {
	next := s.reads[0]
	s.reads = s.reads[1:]
	if next == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, name)
	}
	return next, nil
}

func (s *script) Apply(
	context.Context, *unstructured.Unstructured, tenant.ApplyOptions,
) (*unstructured.Unstructured, error) {
	next := s.answers[0]
	s.answers = s.answers[1:]
	return next.DeepCopy(), nil
}

func (s *script) HasScale(context.Context, schema.GroupVersionKind) (bool, error) { return false, nil }

// unclaimed are the inventories of StageSets that have nothing.
type unclaimed struct{}

func (unclaimed) Claims(context.Context, inventory.Place) ([]inventory.Claim, error) { return nil, nil }

// Both halves of a comparison are of one moment: what others write between them is no drift.
func TestVerifyComparesOneMoment(t *testing.T) {
	at := func(resourceVersion, ours, theirs string) *unstructured.Unstructured {
		live := object(t, plain)
		live.SetResourceVersion(resourceVersion)
		live.Object["data"] = map[string]any{"ours": ours, "theirs": theirs}
		return live
	}
	cases := map[string]struct {
		reads, answers []*unstructured.Unstructured
		state          drift.State
		found          string
	}{
		"as it was applied": {
			reads: []*unstructured.Unstructured{at("1", "a", "x")}, answers: []*unstructured.Unstructured{at("1", "a", "x")},
			state: drift.Unchanged,
		},
		"drifted": {
			reads: []*unstructured.Unstructured{at("1", "b", "x")}, answers: []*unstructured.Unstructured{at("1", "a", "x")},
			state: drift.Suspect, found: "ConfigMap team-a/plain: data.ours",
		},
		"written in between": {
			reads:   []*unstructured.Unstructured{at("1", "a", "x"), at("2", "a", "y")},
			answers: []*unstructured.Unstructured{at("2", "a", "y"), at("2", "a", "y")},
			state:   drift.Unchanged,
		},
		"drifted in between": {
			reads:   []*unstructured.Unstructured{at("1", "a", "x"), at("2", "b", "x")},
			answers: []*unstructured.Unstructured{at("2", "a", "x"), at("2", "a", "x")},
			state:   drift.Suspect, found: "ConfigMap team-a/plain: data.ours",
		},
		"deleted since it was listed": {
			reads: []*unstructured.Unstructured{nil}, answers: []*unstructured.Unstructured{at("", "a", "")},
			state: drift.Missing, found: "ConfigMap team-a/plain was deleted",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			target := &script{reads: tc.reads, answers: tc.answers}
			checker := checker{
				applier: ownership.Applier{Owner: ownership.Owner{Namespace: "team-a", Name: "app"}, Claims: unclaimed{}},
				stage:   ClearedStage{target: target},
			}
			suspect := &Object{
				rendered: Rendered{Desired: object(t, plain)}, key: inventory.KeyOf(object(t, plain)),
				state: drift.Suspect, live: &drift.Live{},
			}
			if err := checker.check(t.Context(), suspect); err != nil {
				t.Fatal(err)
			}
			found := ""
			if suspect.Drift() != nil {
				found = suspect.Drift().String()
			}
			if diff := cmp.Diff(tc.found, found); suspect.state != tc.state || diff != "" {
				t.Errorf("state %d, want %d; drift (-want +got):\n%s", suspect.state, tc.state, diff)
			}
			if len(target.reads)+len(target.answers) > 0 {
				t.Errorf("%d reads and %d dry-runs were not made", len(target.reads), len(target.answers))
			}
		})
	}
}
