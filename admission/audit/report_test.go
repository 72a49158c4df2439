package audit

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/store"
)

// P-55: a policy whose status cannot be written leaves the others theirs, and is an error, so that the audit is begun again;
// one that has been deleted meanwhile is none.
func TestReportGoesOnAroundAStatusThatCannotBeWritten(t *testing.T) {
	var stored []v1alpha1.StageSetPolicy
	var objects []client.Object
	for _, name := range []string{"a", "broken", "gone", "z"} {
		policy := v1alpha1.StageSetPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: 1},
			Spec: v1alpha1.StageSetPolicySpec{
				Validations: []v1alpha1.Validation{{Name: "r", Expression: "true", Message: "m"}},
			},
		}
		stored = append(stored, policy)
		if name != "gone" {
			objects = append(objects, policy.DeepCopy())
		}
	}
	set, err := policies.Compile(t.Context(), stored, policies.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var written []string
	a := &Auditor{
		Installation: "n/r", Clock: clocktesting.NewFakeClock(time.Unix(1, 0)),
		Client: clientOf(t, objects, func(name string) error {
			written = append(written, name)
			if name == "broken" {
				return errors.New("refused")
			}
			return nil
		}),
	}
	err = a.report(t.Context(), store.Snapshot{Set: set, Stored: stored}, nil, &findings{})
	if err == nil || !strings.Contains(err.Error(), "writing the status of StageSetPolicy broken: refused") {
		t.Errorf("the error is %v", err)
	}
	slices.Sort(written)
	if diff := cmp.Diff([]string{"a", "broken", "z"}, written); diff != "" {
		t.Errorf("whose status is written (-want +got):\n%s", diff)
	}
}

// clientOf is a client of an API server with the objects, which asks what comes of each status that is applied.
func clientOf(t *testing.T, objects []client.Object, apply func(name string) error) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, admissionregistrationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		SubResourceApply: func(
			_ context.Context, _ client.Client, _ string, object runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption,
		) error {
			return apply(object.(interface{ GetName() string }).GetName())
		},
	}).Build()
}
