package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/builtin"
	"github.com/stageset/stageset/policies/store"
)

// benchStages is how many stages the StageSets have.
const benchStages = 20

// BenchmarkReview is what a creation costs without the network: the body that the API server sends to each webhook, to the
// body of the answer, with the built-in policies and others of one rule each. The requester may use the account. What no
// webhook that looks at an object can do without is measured as decoding.
func BenchmarkReview(b *testing.B) {
	content := benchReview(b)
	b.Run("decoding", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var review admissionv1.AdmissionReview
			if err := json.Unmarshal(content, &review); err != nil {
				b.Fatal(err)
			}
			if _, err := decodeObject(review.Request.Object); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, n := range []int{0, 10, 50} {
		server := benchServer(b, n)
		for name, path := range map[string]string{"default": PathDefault, "validate": PathValidate} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					response := httptest.NewRecorder()
					request := httptest.NewRequest(http.MethodPost, path+"?timeout=5s", bytes.NewReader(content))
					request.Header.Set("Content-Type", "application/json")
					server.ServeHTTP(response, request)
					if !bytes.Contains(response.Body.Bytes(), []byte(`"allowed":true`)) {
						b.Fatal(response.Body)
					}
				}
			})
		}
	}
}

// benchServer serves the webhooks with n policies beside the built-in ones.
func benchServer(b *testing.B, n int) http.Handler {
	b.Helper()
	builtIn, err := builtin.Compile(b.Context(), policies.Config{})
	if err != nil {
		b.Fatal(err)
	}
	measured, err := store.NewMetrics(prometheus.NewRegistry(), clock.RealClock{}, store.PointAudit)
	if err != nil {
		b.Fatal(err)
	}
	set, err := builtIn.Observed(measured).With(b.Context(), benchPolicies(n), nil)
	if err != nil {
		b.Fatal(err)
	}
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		b.Fatal(err)
	}
	server := ctrlwebhook.NewServer(ctrlwebhook.Options{})
	(&Server{
		StageSets: &StageSets{
			Policies:   func() Policies { return set },
			Namespaces: Namespaces{Cache: newReader(b, newNamespace(metav1.ObjectMeta{Name: "team-a"}))},
			Authorizer: policies.NewAuthorizer(func(_ context.Context, review *authorizationv1.SubjectAccessReview) error {
				review.Status.Allowed = true
				return nil
			}),
		},
		MaxInFlight: 1, Draining: func() bool { return false }, Metrics: metrics,
	}).Register(server)
	return server.WebhookMux()
}

// benchPolicies look at every stage.
func benchPolicies(n int) []v1alpha1.StageSetPolicy {
	list := make([]v1alpha1.StageSetPolicy, n)
	for i := range list {
		name := fmt.Sprintf("bench-%02d", i)
		list[i].Name, list[i].UID = name, types.UID(name)
		list[i].Spec.Validations = []v1alpha1.Validation{{
			Name: "stages", Message: "a stage must not be called " + name,
			Expression: fmt.Sprintf("object.spec.stages.all(stage, stage.name != '%s')", name),
		}}
	}
	return list
}

// benchReview is what the API server sends about the creation of a StageSet, which has managed fields by then.
func benchReview(b *testing.B) []byte {
	b.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "stages.metio.wtf/v1", "kind": "StageSet",
		"metadata": map[string]any{"name": "app", "namespace": "team-a", "uid": "8f0d9c1e-7a7b-4f7b-9b1b-0d2b7f1a2c3d"},
	}}
	owned, stages := map[string]any{}, make([]any, benchStages)
	for i := range stages {
		name := fmt.Sprintf("stage-%d", i)
		stages[i] = map[string]any{
			"name": name, "path": "./", "prune": true, "sourceRef": map[string]any{"kind": "GitRepository", "name": "app"},
		}
		owned[fmt.Sprintf(`k:{"name":%q}`, name)] = map[string]any{
			".": map[string]any{}, "f:name": map[string]any{}, "f:path": map[string]any{}, "f:prune": map[string]any{},
			"f:sourceRef": map[string]any{"f:kind": map[string]any{}, "f:name": map[string]any{}},
		}
	}
	object.Object["spec"] = map[string]any{"interval": "10m", "serviceAccountName": "deployer", "stages": stages}
	fields, err := json.Marshal(map[string]any{"f:spec": map[string]any{
		"f:interval": map[string]any{}, "f:serviceAccountName": map[string]any{}, "f:stages": owned,
	}})
	if err != nil {
		b.Fatal(err)
	}
	object.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "stages.metio.wtf/v1",
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(fields)),
	}})
	request := newRequest(b, "team-a", nil, object)
	request.UserInfo = authenticationv1.UserInfo{Username: "joe", Groups: []string{"team-a", "system:authenticated"}}
	content := new(bytes.Buffer)
	if _, err := content.ReadFrom(body(b, request)); err != nil {
		b.Fatal(err)
	}
	return content.Bytes()
}
