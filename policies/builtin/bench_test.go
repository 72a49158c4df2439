package builtin_test

import (
	"context"
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/builtin"
)

// BenchmarkValidate is a request with all built-in rules: a StageSet that keeps all of them, and one in which every stage
// breaks one.
func BenchmarkValidate(b *testing.B) {
	set, err := builtin.Compile(b.Context(), policies.Config{})
	if err != nil {
		b.Fatal(err)
	}
	for _, stages := range []int{1, 3, 20} {
		for name, broken := range map[string]bool{"allow": false, "deny": true} {
			in := request(stages, broken)
			if denied := len(set.Validate(b.Context(), in).Denied) > 0; denied != broken {
				b.Fatalf("denied is %t", denied)
			}
			b.Run(fmt.Sprintf("stages=%d/%s", stages, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					set.Validate(b.Context(), in)
				}
			})
		}
	}
}

// BenchmarkDefault is a request in which the account is filled in.
func BenchmarkDefault(b *testing.B) {
	set, err := builtin.Compile(b.Context(), policies.Config{DefaultServiceAccount: "deployer"})
	if err != nil {
		b.Fatal(err)
	}
	in := request(3, true)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := set.Default(b.Context(), in); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCompile is what starting costs.
func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := builtin.Compile(b.Context(), policies.Config{}); err != nil {
			b.Fatal(err)
		}
	}
}

// request creates a StageSet with that many stages; a broken one has no account, and sources elsewhere.
func request(stages int, broken bool) policies.Input {
	spec := map[string]any{"serviceAccountName": "deployer"}
	source := map[string]any{"kind": "GitRepository", "name": "app"}
	if broken {
		spec, source["namespace"] = map[string]any{}, "flux-system"
	}
	var list []any
	for i := range stages {
		list = append(list, map[string]any{
			"name": fmt.Sprintf("stage-%d", i), "path": "./", "prune": true, "sourceRef": source,
		})
	}
	spec["stages"] = list
	return policies.Input{
		Object: &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "stages.metio.wtf/v1",
			"kind":       "StageSet",
			"metadata":   map[string]any{"name": "app", "namespace": "team-a"},
			"spec":       spec,
		}},
		Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}},
		Request: &admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Namespace: "team-a", Name: "app", UserInfo: authenticationv1.UserInfo{Username: "joe"},
		},
		Authorizer: policies.NewAuthorizer(func(_ context.Context, review *authorizationv1.SubjectAccessReview) error {
			review.Status.Allowed = true
			return nil
		}),
	}
}
