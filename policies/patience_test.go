package policies_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

// slowly finds parameters: for policies whose name says slow, when all of their time has passed.
type slowly struct{}

func (slowly) Params(ctx context.Context, query policies.ParamQuery) ([]*unstructured.Unstructured, error) {
	if strings.HasPrefix(query.Policy, "slow") {
		<-ctx.Done()
	}
	return []*unstructured.Unstructured{{Object: map[string]any{"data": map[string]any{}}}}, nil
}

// However many policies are slow, whatever their names: those after them are evaluated nevertheless.
func TestSlowPoliciesLeaveTimeForAllOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const params = "paramKind: {apiVersion: v1, kind: ConfigMap}\nparamRef: {name: limits}"
		var list []v1alpha1.StageSetPolicy
		for _, name := range []string{"first", "slow-a", "slow-b", "slow-c", "slow-d", "slow-e", "slow-f", "then", "with"} {
			list = append(list, rule(t, name, "params == null", params+"\nfailurePolicy: Ignore"))
		}
		set, err := policies.Compile(t.Context(), list, policies.Options{Lookup: slowly{}, Timeout: 4 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		decision := set.Validate(t.Context(), creating(stageSet(t, "")))
		want := []string{"first", "then", "with"}
		var denied, ignored []string
		for _, violation := range decision.Denied {
			denied = append(denied, violation.Policy)
		}
		for _, violation := range decision.Ignored {
			ignored = append(ignored, violation.Policy)
		}
		if diff := cmp.Diff(want, denied); diff != "" {
			t.Errorf("policies that deny (-want +got):\n%s", diff)
		}
		if len(ignored) != 6 || slices.ContainsFunc(ignored, func(name string) bool { return !strings.HasPrefix(name, "slow") }) {
			t.Errorf("not evaluated in time are %q, want the six slow ones", ignored)
		}
	})
}
