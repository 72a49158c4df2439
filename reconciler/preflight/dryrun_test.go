package preflight

import (
	"context"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/stageset/stageset/reconciler/drift"
	"github.com/stageset/stageset/reconciler/health"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/ownership"
	"github.com/stageset/stageset/reconciler/tenant"
)

// busy is a target whose one object somebody writes before each request. An apply would make its spec the applied one.
type busy struct {
	Target
	field     string
	live      string
	hasStatus bool
	writes    int64
}

func (b *busy) object(spec string) *unstructured.Unstructured {
	b.writes++
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{
			"name": "a", "namespace": "team-a", "uid": "1", "resourceVersion": strconv.FormatInt(b.writes, 10),
		},
		"spec": spec,
	}}
	obj.Object[b.field] = map[string]any{"writes": b.writes}
	return obj
}

func (b *busy) Get(context.Context, schema.GroupVersionKind, string, string) (*unstructured.Unstructured, error) {
	return b.object(b.live), nil
}

func (b *busy) Apply(context.Context, *unstructured.Unstructured, tenant.ApplyOptions) (*unstructured.Unstructured, error) {
	return b.object("applied"), nil
}

func (b *busy) HasScale(context.Context, schema.GroupVersionKind) (bool, error) { return false, nil }

func (b *busy) HasStatus(context.Context, schema.GroupVersionKind) bool { return b.hasStatus }

// What others write between the two looks at an object that never stands still is no drift; what differs all the same is.
func TestVerifyOfBusyObjects(t *testing.T) {
	cases := map[string]struct {
		target  *busy
		drifted bool
	}{
		"its status changes":                 {target: &busy{field: "status", live: "applied", hasStatus: true}},
		"its status changes, and it drifted": {target: &busy{field: "status", live: "edited", hasStatus: true}, drifted: true},
		"what cannot be told from drift":     {target: &busy{field: "data", live: "applied"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			live := drift.Live{}
			object := &Object{
				rendered: Rendered{Desired: tc.target.object("applied")}, state: drift.Suspect, live: &live,
				key: inventory.KeyOf(tc.target.object("applied")),
			}
			check := checker{
				applier: ownership.Applier{Owner: ownership.Owner{Namespace: "team-a", Name: "shop"}},
				stage:   ClearedStage{target: tc.target, judge: &health.Judge{}}, loops: &Loops{},
			}
			if err := check.check(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			if object.Changed() != tc.drifted || (object.found != nil) != tc.drifted {
				t.Errorf("changed %t, found %v, want drift %t", object.Changed(), object.found, tc.drifted)
			}
		})
	}
}
