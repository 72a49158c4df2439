package controller

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/reconciler/inventory/store"
	"github.com/stageset/stageset/reconciler/rules"
)

// What Warn warns of is said at each pass, also of one that another policy refuses, and twice in the same words.
func TestReleaseWarnsOfWhatIsRefused(t *testing.T) {
	var list []v1alpha1.StageSetPolicy
	for name, action := range map[string]v1alpha1.ValidationAction{
		"a": v1alpha1.ValidationActionDeny, "b": v1alpha1.ValidationActionWarn,
	} {
		list = append(list, v1alpha1.StageSetPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.StageSetPolicySpec{
			ValidationActions: []v1alpha1.ValidationAction{action},
			Validations:       []v1alpha1.Validation{{Name: "rule", Expression: "false", Message: "is wrong"}},
		}})
	}
	compiled, err := policies.Compile(t.Context(), list, policies.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{Policies: rules.New(func() *policies.Set { return compiled }), Clock: clock.RealClock{}}
	set := &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Name: "app", Namespace: "team-a"}}
	snap := &snapshot{
		set: set, namespace: &corev1.Namespace{}, book: &store.Book{}, memo: (&memory{}).of(client.ObjectKeyFromObject(set), "1"),
	}
	for range 2 {
		r.fillIn(t.Context(), snap)
		ended := r.reconcile(t.Context(), t.Context(), snap)
		if ended.Failure == nil || ended.Failure.Reason != v1.ReasonPolicyViolation {
			t.Fatalf("it is not refused: %+v", ended)
		}
		if diff := cmp.Diff("a/rule: is wrong; policies warn: b/rule: is wrong", ended.Failure.Error()); diff != "" {
			t.Errorf("message (-want +got):\n%s", diff)
		}
	}
}
