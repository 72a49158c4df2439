package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// gatekeeper is a validating webhook of somebody else that lets every dry-run pass, and nothing else until it gives way.
type gatekeeper struct {
	dryRuns, refusals atomic.Int64
	givesWay          atomic.Bool
}

// gatekeeperSays is what it tells whom it refuses something.
const gatekeeperSays = "no Services before nine o'clock"

// gatekeeper is called for new Services of the tenant, until the end of the test.
func (n *tenant) gatekeeper(t testing.TB) *gatekeeper {
	t.Helper()
	keeper := &gatekeeper{}
	n.webhook(t, "services", keeper.judge)
	n.awaitCalls(t, keeper)
	return keeper
}

// webhook has the API server ask whether the tenant may have a new object of a resource of the core group, until the end of
// the test. A status refuses it.
func (n *tenant) webhook(
	t testing.TB, resource string, judge func(context.Context, *admissionv1.AdmissionRequest) *metav1.Status,
) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, "not a review", http.StatusBadRequest)
			return
		}
		refusal := judge(r.Context(), review.Request)
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: refusal == nil, Result: refusal}
		review.Request = nil
		_ = json.NewEncoder(w).Encode(review) // the API server says what it makes of half an answer
	}))
	t.Cleanup(server.Close)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	name := "gatekeeper-" + n.namespace
	n.Apply(t, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %s}
webhooks:
- name: gatekeeper.example.com
  admissionReviewVersions: [v1]
  clientConfig: {url: %s, caBundle: %s}
  failurePolicy: Fail
  sideEffects: None
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [%s]}]
`, name, server.URL, base64.StdEncoding.EncodeToString(certificate), n.namespace, resource))
	n.deleteAfter(t, cluster.Ref("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", name))
}

// awaitCalls waits until the API server asks the webhook.
func (n *tenant) awaitCalls(t testing.TB, keeper *gatekeeper) {
	t.Helper()
	cluster.Eventually(t, func(ctx context.Context) error {
		probe := cluster.Ref("v1", "Service", n.namespace, "probe")
		probe.Object["spec"] = map[string]any{"ports": []any{map[string]any{"port": int64(80)}}}
		err := n.Client.Create(ctx, probe, client.DryRunAll)
		if err == nil && keeper.dryRuns.Load() == 0 {
			return errors.New("the webhook is not called yet")
		}
		return err
	})
}

// judge answers a review.
func (g *gatekeeper) judge(_ context.Context, request *admissionv1.AdmissionRequest) *metav1.Status {
	switch {
	case ptr.Deref(request.DryRun, false):
		g.dryRuns.Add(1)
	case !g.givesWay.Load():
		g.refusals.Add(1)
		return &metav1.Status{Message: gatekeeperSays}
	}
	return nil
}

// A webhook that lets the dry-run of a stage's last object pass and refuses to have it made fails the stage with its own
// words. What the stage had made before stays, and is recorded as made; the next stage does not begin. When the webhook
// gives way, the release ends without a hand, and all of it goes with the StageSet.
func TestWebhookRefusesTheLastObjectOfAStage(t *testing.T) {
	n := shared(t).tenant(t)
	keeper := n.gatekeeper(t)
	probed := keeper.dryRuns.Load()
	revision := n.source(t, "app", map[string]string{
		"one/all.yaml": documents(configMap("a", "1"), configMap("b", "1"), service("ports: [{port: 80}]")),
		"two/c.yaml":   configMap("c", "1"),
	})
	n.stageSet(t, "app", "retryInterval: 1s"+twoStages("app"))
	n.wait(t, "app", phase("one", v1.StageFailed), cluster.Condition(v1.ConditionReady, "False", v1.ReasonApplyFailed),
		messageHas("Service "+n.namespace+"/web"), messageHas(`"gatekeeper.example.com" denied the request: `+gatekeeperSays))
	if dryRuns, refusals := keeper.dryRuns.Load()-probed, keeper.refusals.Load(); dryRuns == 0 || refusals == 0 {
		t.Errorf("the webhook let %d dry-runs of the Service pass and refused %d times, want both", dryRuns, refusals)
	}
	web := cluster.Ref("v1", "Service", n.namespace, "web")
	n.absent(t, web, n.configMap("c"))
	made := map[string]types.UID{"a": n.uid(t, n.configMap("a")), "b": n.uid(t, n.configMap("b")), "web": ""}
	if diff := cmp.Diff(made, n.recordedUIDs(t, "app")); diff != "" {
		t.Errorf("inventory while the webhook refuses (-want +got):\n%s", diff)
	}

	keeper.givesWay.Store(true)
	n.waitReady(t, "app", "app", revision)
	for _, name := range []string{"a", "b"} {
		n.unchanged(t, n.configMap(name), made[name])
	}
	made["web"], made["c"] = n.uid(t, web), n.uid(t, n.configMap("c"))
	if diff := cmp.Diff(made, n.recordedUIDs(t, "app")); diff != "" {
		t.Errorf("inventory in the end (-want +got):\n%s", diff)
	}
	n.delete(t, "app")
	n.gone(t, "app")
	n.absent(t, web, n.configMap("a"), n.configMap("b"), n.configMap("c"))
}

// recordedUIDs are the UIDs in the inventories of a StageSet, by the names of the objects; empty is one that is not known to
// be made.
func (n *tenant) recordedUIDs(t testing.TB, stageSet string) map[string]types.UID {
	t.Helper()
	var list v1.StageInventoryList
	if err := n.Client.List(t.Context(), &list, client.InNamespace(n.namespace)); err != nil {
		t.Fatal(err)
	}
	uids := map[string]types.UID{}
	for _, record := range list.Items {
		if record.Spec.StageSet != stageSet {
			continue
		}
		for _, entry := range record.Spec.Entries {
			uids[entry.Name] = entry.UID
		}
	}
	return uids
}
