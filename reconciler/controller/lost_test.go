package controller

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/inventory/store"
)

// What is said to be lost is lost: a process that died after it had removed the record of a stage that left the spec, and
// before it said so, has lost nothing, nor has one whose cache is behind.
func TestReportLost(t *testing.T) {
	of := func(status v1.StageStatus, spec ...string) *v1.StageSet {
		set := &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "shop", UID: "1"}}
		for _, name := range spec {
			set.Spec.Stages = append(set.Spec.Stages, v1.Stage{Name: name})
		}
		set.Status.Stages = []v1.StageStatus{status}
		return set
	}
	applied := v1.StageStatus{Name: "app", Phase: v1.StageReady, Objects: 2}
	empty := v1.StageStatus{Name: "app", Phase: v1.StageReady}
	cases := map[string]struct {
		cached, live *v1.StageSet
		want         []string
	}{
		"the record of a stage that is applied":     {cached: of(applied, "app"), live: of(applied, "app"), want: []string{"app"}},
		"a stage that left the spec":                {cached: of(applied, "db"), live: of(applied, "db")},
		"a stage without objects":                   {cached: of(empty, "app"), live: of(empty, "app")},
		"objects that a stale cache alone tells of": {cached: of(applied, "app"), live: of(empty, "app")},
		"a stage that a stale cache alone has":      {cached: of(applied, "app"), live: of(applied, "db")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			named := func(obj client.Object) []string { return []string{obj.GetName()} }
			live := fake.NewClientBuilder().WithScheme(scheme(t)).WithIndex(&v1.StageSet{}, "metadata.name", named).
				WithObjects(tc.live).Build()
			r := &Reconciler{Live: live, Events: &recorder{}}
			snap := &snapshot{set: tc.cached, book: &store.Book{}, memo: r.memory.of(client.ObjectKeyFromObject(tc.cached), "1")}
			if err := r.reportLost(t.Context(), snap); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, snap.memo.lost); diff != "" {
				t.Errorf("lost (-want +got):\n%s", diff)
			}
		})
	}
}
