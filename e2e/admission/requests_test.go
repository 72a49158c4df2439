package admission_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/e2e/cluster"
)

// P-26, P-27: what no rule can be about does not reach the webhook, neither from the reconciler nor from anybody else, and
// there is one call for what does (P-46). P-30: none of it costs a request to the API server but the question what the
// requester may do.
func TestOnlyWhatRulesAreAboutReachesTheWebhook(t *testing.T) {
	i := install(t)
	i.installWebhooks(t)
	r := i.start(t)
	object := func() *unstructured.Unstructured { return i.stageSet(t, "counted", validSpec) }
	patch := func(patch string, options ...client.PatchOption) func(context.Context) error {
		return func(ctx context.Context) error {
			return i.client.Patch(ctx, object(), client.RawPatch(types.MergePatchType, []byte(patch)), options...)
		}
	}
	apply := func(ctx context.Context) error {
		configuration := client.ApplyConfigurationFromUnstructured(object())
		return i.client.Apply(ctx, configuration, client.FieldOwner("tenant"), client.ForceOwnership)
	}
	status := func(ctx context.Context) error {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"status": {"currentStage": "one"}}`))
		return i.client.Status().Patch(ctx, object(), patch)
	}
	// One that exists: without its owner it would be collected.
	namespace := i.WaitFor(t, cluster.Ref("v1", "Namespace", "", i.tenant))
	owner := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Namespace", "name": %q, "uid": %q}`, i.tenant, namespace.GetUID())
	mark := i.Audit(t)
	for _, step := range []struct {
		name    string
		request func(context.Context) error
		want    int // of each webhook
	}{
		{"create", func(ctx context.Context) error { return i.client.Create(ctx, object()) }, 1},
		{"read", func(ctx context.Context) error {
			return i.client.Get(ctx, client.ObjectKeyFromObject(object()), object())
		}, 0},
		{"finalizer", patch(`{"metadata": {"finalizers": ["example.com/hold"]}}`), 0},
		{"owner", patch(`{"metadata": {"ownerReferences": [` + owner + `]}}`), 0},
		{"status", status, 0},
		{"status with all the rest", func(ctx context.Context) error {
			live := i.WaitFor(t, object())
			live.SetLabels(map[string]string{"a": "b"})
			live.Object["status"] = map[string]any{"currentStage": "two"}
			return i.client.Status().Update(ctx, live)
		}, 0},
		{"no change", patch(`{}`), 0},
		{"finalizer and owner removed", patch(`{"metadata": {"finalizers": null, "ownerReferences": null}}`), 0},
		{"the same, applied", apply, 0},
		{"the same, applied again", apply, 0},
		{"label", patch(`{"metadata": {"labels": {"a": "b"}}}`), 1},
		{"annotation", patch(`{"metadata": {"annotations": {"a": "b"}}}`), 1},
		{"spec", patch(`{"spec": {"suspend": true}}`), 1},
		{"spec, as a dry run", patch(`{"spec": {"suspend": false}}`, client.DryRunAll), 1},
		{"all of it", patch(`{"spec": {"suspend": false}, "metadata": {"labels": null, "annotations": null}}`), 1},
		{"delete", func(ctx context.Context) error { return i.client.Delete(ctx, object()) }, 0},
	} {
		defaults, validates := r.requests(t, "default"), r.requests(t, "validate")
		if err := step.request(t.Context()); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		defaults, validates = r.requests(t, "default")-defaults, r.requests(t, "validate")-validates
		if defaults != step.want || validates != step.want {
			t.Errorf("%s: %d and %d calls, want %d of each webhook", step.name, defaults, validates, step.want)
		}
	}
	for _, event := range mark.Since(t, cluster.ByAccount(i.name, i.name+"-admission")) {
		switch event.Resource {
		case "subjectaccessreviews": // which a built-in policy asks for
		case "leases", "secrets", "stagesets": // of the leader: the certificate, and the audit at its beginning
		default:
			t.Errorf("the webhook asks the API server: %s", event)
		}
	}
}

// A policy reaches the webhook when its text changes: a status, or a label, never waits for its tests.
func TestOnlyTheTextOfAPolicyReachesTheWebhook(t *testing.T) {
	i := install(t)
	i.installWebhooks(t)
	r := i.start(t)
	const series = `controller_runtime_webhook_requests_total{code="200",webhook="/stagesetpolicies/validate"}`
	policy := cluster.Ref("stages.metio.wtf/v1alpha1", "StageSetPolicy", "", i.tenant+"-counted")
	patch := func(text string) func() error {
		return func() error {
			return i.client.Patch(t.Context(), policy, client.RawPatch(types.MergePatchType, []byte(text)))
		}
	}
	status := func() error {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"status": {"installations": []}}`))
		return i.client.Status().Patch(t.Context(), policy, patch)
	}
	for _, step := range []struct {
		name    string
		request func() error
		want    int
	}{
		{"create", func() error { i.policy(t, "counted", always); return nil }, 1},
		{"label", patch(`{"metadata": {"labels": {"a": "b"}}}`), 0},
		{"status", status, 0},
		{"spec", patch(`{"spec": {"failurePolicy": "Ignore"}}`), 1},
		{"delete", func() error { return i.client.Delete(t.Context(), policy) }, 0},
	} {
		before := r.count(t, series)
		if err := step.request(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got := r.count(t, series) - before; got != step.want {
			t.Errorf("%s: %d calls, want %d", step.name, got, step.want)
		}
	}
}

// P-45: a dry run gets the same verdict in the same words, and nothing that counts what is enforced has it.
func TestDryRunLeavesNoTrace(t *testing.T) {
	i := install(t)
	i.installWebhooks(t)
	r := i.start(t)
	i.inForce(t, i.policy(t, "limits", limits), i.policy(t, "warns", fmt.Sprintf(wantsTwoStages, "Warn")))
	for name, spec := range map[string]string{
		"denied": validSpec + "interval: 2h", "warned about": validSpec, "allowed": twoStagesSpec,
	} {
		t.Run(name, func(t *testing.T) {
			object := i.stageSet(t, "dry-or-not", spec)
			before := r.enforcement(t)
			dry := i.verdict(t, object, client.DryRunAll)
			if diff := cmp.Diff(before, r.enforcement(t)); diff != "" {
				t.Errorf("a dry run is counted (-before +after):\n%s", diff)
			}
			if diff := cmp.Diff(dry, i.verdict(t, object)); diff != "" {
				t.Errorf("verdict (-dry run +for real):\n%s", diff)
			}
			if cmp.Equal(before, r.enforcement(t)) {
				t.Error("what is enforced is not counted, either")
			}
			if err := client.IgnoreNotFound(i.client.Delete(t.Context(), object)); err != nil {
				t.Fatal(err)
			}
		})
	}
	var events corev1.EventList
	if err := i.client.List(t.Context(), &events, client.InNamespace(i.tenant)); err != nil || len(events.Items) > 0 {
		t.Errorf("events: %v %v", events.Items, err)
	}
}

// enforcement are the counters of what is enforced at admission.
func (r *replica) enforcement(t *testing.T) map[string]float64 {
	t.Helper()
	found := map[string]float64{}
	for series, value := range r.measure(t) {
		if strings.HasPrefix(series, "stageset_admission_seconds_count") ||
			strings.HasPrefix(series, "stageset_policy_decisions_total") && strings.Contains(series, `="admission"`) {
			found[series] = value
		}
	}
	return found
}

// verdict is what somebody is told who creates a StageSet: the warnings, and the refusal.
func (i *installation) verdict(t *testing.T, object *unstructured.Unstructured, options ...client.CreateOption) []string {
	t.Helper()
	said := &warnings{}
	config := rest.CopyConfig(i.Config)
	config.WarningHandlerWithContext = said
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), object.DeepCopy(), options...); err != nil {
		said.texts = append(said.texts, err.Error())
	}
	return said.texts
}

// warnings are those of the API server.
type warnings struct{ texts []string }

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, code int, _ string, text string) {
	if code == 299 {
		w.texts = append(w.texts, text)
	}
}
