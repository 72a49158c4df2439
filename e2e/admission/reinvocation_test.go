package admission_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/e2e/cluster"
)

// another is a mutating webhook of somebody else, which the API server calls after ours.
type another struct {
	patch atomic.Pointer[string]
	calls atomic.Int64
}

// intervene installs the webhook for the StageSets of the tenant, until the end of the test.
func (i *installation) intervene(t *testing.T) *another {
	t.Helper()
	a := &another{}
	a.patch.Store(ptr.To("[]"))
	server := httptest.NewTLSServer(a)
	t.Cleanup(server.Close)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	name := "zz-" + i.tenant // after that of the release
	i.Apply(t, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: %s}
webhooks:
- name: another.example.com
  admissionReviewVersions: [v1]
  clientConfig: {url: %s, caBundle: %s}
  failurePolicy: Fail
  sideEffects: None
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}
  rules:
  - {apiGroups: [stages.metio.wtf], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [stagesets]}
`, name, server.URL, base64.StdEncoding.EncodeToString(certificate), i.tenant))
	t.Cleanup(func() {
		ref := cluster.Ref("admissionregistration.k8s.io/v1", mutating, "", name)
		if err := i.client.Delete(context.Background(), ref); err != nil {
			t.Errorf("deleting %s: %v", name, err)
		}
	})
	cluster.Eventually(t, func(ctx context.Context) error {
		err := i.client.Create(ctx, i.stageSet(t, "probe", validSpec), client.DryRunAll)
		if err == nil && a.calls.Load() == 0 {
			return fmt.Errorf("%s is not called yet", name)
		}
		return err
	})
	return a
}

// ServeHTTP answers each review with the patch.
func (a *another) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.calls.Add(1)
	review.Response = &admissionv1.AdmissionResponse{
		UID: review.Request.UID, Allowed: true, Patch: []byte(*a.patch.Load()), PatchType: ptr.To(admissionv1.PatchTypeJSONPatch),
	}
	review.Request = nil
	_ = json.NewEncoder(w).Encode(review) // the API server says what it makes of half an answer
}

// What another webhook makes of a defaulted StageSet is defaulted once more, and what comes of it is validated.
func TestWhatAnotherWebhookChangesIsDefaultedAndValidatedAgain(t *testing.T) {
	i := install(t)
	i.installWebhooks(t)
	i.failClosed(t)
	r := i.start(t)
	filling := i.policy(t, "fills", fills).GetName()
	i.inForce(t, i.policy(t, "limits", limits))
	other := i.intervene(t)
	filled := fmt.Sprintf("metadata.labels.cost=%[1]s,spec.retryInterval=%[1]s", filling)
	for name, test := range map[string]struct {
		patch  string
		calls  int // of our webhook that defaults
		denied string
		by     string // the annotation about what is defaulted
	}{
		"nothing":             {patch: "[]", calls: 1, by: filled},
		"takes a default out": {patch: `[{"op": "remove", "path": "/spec/retryInterval"}]`, calls: 2, by: filled},
		"has a field otherwise": {
			patch: `[{"op": "replace", "path": "/spec/retryInterval", "value": "3m"}]`,
			calls: 2, by: "metadata.labels.cost=" + filling,
		},
		"forges who defaulted": {
			patch: `[{"op": "replace", "path": "/metadata/annotations", "value": {"` + attacked["by"][2] + `": "spec.stages=x"}}]`,
			calls: 2,
		},
		"breaks a rule": {
			patch: `[{"op": "add", "path": "/spec/interval", "value": "2h"}]`, calls: 2, denied: "limits/interval",
		},
		"does what is allowed": {patch: `[{"op": "add", "path": "/spec/suspend", "value": true}]`, calls: 2, by: filled},
	} {
		t.Run(name, func(t *testing.T) {
			other.patch.Store(&test.patch)
			before := r.requests(t, "default")
			object := i.stageSet(t, "seen-by-another", validSpec)
			err := i.client.Create(t.Context(), object, client.DryRunAll)
			if got := r.requests(t, "default") - before; got != test.calls {
				t.Errorf("%d calls, want %d", got, test.calls)
			}
			if (err == nil) != (test.denied == "") || err != nil && !strings.Contains(err.Error(), test.denied) {
				t.Fatalf("got %v, want a refusal with %q", err, test.denied)
			}
			if err != nil {
				return
			}
			if diff := cmp.Diff(test.by, object.GetAnnotations()[attacked["by"][2]]); diff != "" {
				t.Errorf("defaulted by (-want +got):\n%s", diff)
			}
			if retry, _, _ := unstructured.NestedString(object.Object, "spec", "retryInterval"); retry == "" {
				t.Error("what was taken out is not filled in again")
			}
		})
	}
}
