package audit

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

// lookup finds what it is told.
type lookup struct {
	objects int
	err     error
}

func (l lookup) Params(context.Context, policies.ParamQuery) ([]*unstructured.Unstructured, error) {
	return make([]*unstructured.Unstructured, l.objects), l.err
}

// P-09: parameters that are not there, or that this installation may not read, are in the status before a StageSet meets
// them. Those that are in the namespaces of the StageSets are looked for there.
func TestMissingParams(t *testing.T) {
	refused := errors.New("this installation may not get ConfigMap")
	const limits = "params ConfigMap platform/limits: "
	for name, test := range map[string]struct {
		namespace string
		action    v1alpha1.ParameterNotFoundAction
		lookup    lookup
		want      string
	}{
		"found":                  {namespace: "platform", lookup: lookup{objects: 1}},
		"none":                   {"platform", "", lookup{}, limits + "there is none (parameterNotFoundAction Deny)"},
		"none, which is allowed": {"platform", v1alpha1.ParameterNotFoundAllow, lookup{}, ""},
		"refused":                {"platform", v1alpha1.ParameterNotFoundDeny, lookup{err: refused}, limits + refused.Error()},
		"refused, where none is allowed": {
			"platform", v1alpha1.ParameterNotFoundAllow, lookup{err: refused}, limits + refused.Error(),
		},
		"in each namespace": {lookup: lookup{err: refused}},
	} {
		t.Run(name, func(t *testing.T) {
			policy := &v1alpha1.StageSetPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
			policy.Spec.ParamKind = &v1alpha1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
			policy.Spec.ParamRef = &v1alpha1.ParamRef{
				Name: "limits", Namespace: test.namespace, ParameterNotFoundAction: test.action,
			}
			a := &Auditor{Params: test.lookup}
			if diff := cmp.Diff(test.want, a.missingParams(t.Context(), policy)); diff != "" {
				t.Errorf("missing (-want +got):\n%s", diff)
			}
		})
	}
}
