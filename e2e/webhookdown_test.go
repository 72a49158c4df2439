package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

// webhooksDown installs the webhooks of the chart for the tenant alone, with nobody who answers, and waits until the API
// server calls them.
func (n *tenant) webhooksDown(t testing.TB) {
	t.Helper()
	name := "down-" + n.namespace
	webhooks := chartFile(t, "admission-webhooks.yaml")
	webhooks = strings.ReplaceAll(webhooks, "\n  name: stageset-admission\n", "\n  name: "+name+"\n")
	webhooks = webhookService.ReplaceAllString(webhooks, fmt.Sprintf("url: https://localhost:%d$1", process.FreePort(t)))
	const anchor = "\n  sideEffects: None\n"
	n.Apply(t, strings.ReplaceAll(webhooks, anchor, anchor+
		"  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: "+n.namespace+"}}\n"))
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		n.deleteAfter(t, cluster.Ref("admissionregistration.k8s.io/v1", kind, "", name))
	}
	cluster.Eventually(t, func(ctx context.Context) error {
		err := n.Client.Patch(ctx, n.ref("app"), client.RawPatch("application/merge-patch+json",
			[]byte(`{"spec":{"interval":"1h"}}`)), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
			return fmt.Errorf("a change of a StageSet gives %w, want the webhook called", err)
		}
		return nil
	})
}

// An outage of the webhook stops who writes StageSets, and never the reconciler: it finishes what runs, begins what was
// stored before, prunes, and lets go of what is deleted, namespaces included.
func TestReconcilerDoesNotNeedTheWebhook(t *testing.T) {
	n := shared(t).tenant(t)
	n.source(t, "app", map[string]string{
		"one/web.yaml":    heldDeployment("web", "1"),
		"two/config.yaml": documents(configMap("leaves", "1"), configMap("stays", "1")),
	})
	n.stageSet(t, "app", twoStages("app"))
	n.wait(t, "app", phase("one", v1.StageVerifying))
	n.stageSet(t, "waiting", oneStage("later"))
	n.wait(t, "waiting", cluster.Condition(v1.ConditionReady, "False", v1.ReasonSourceNotFound))

	n.webhooksDown(t)
	web := cluster.Ref("apps/v1", "Deployment", n.namespace, "web")
	n.releasePods(t, web, "Available")
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "True", v1.ReasonSucceeded))
	// The finalizer of this one is added only now.
	later := n.source(t, "later", map[string]string{"config.yaml": configMap("later", "1")})
	n.waitReady(t, "waiting", "later", later)

	second := n.source(t, "app", map[string]string{
		"one/web.yaml": deployment("web", "2"), "two/config.yaml": configMap("stays", "2"),
	})
	n.waitReady(t, "app", "app", second)
	n.absent(t, n.configMap("leaves"))

	n.delete(t, "app")
	n.gone(t, "app")
	n.absent(t, web, n.configMap("stays"))

	namespace := cluster.Ref("v1", "Namespace", "", n.namespace)
	if err := n.Client.Delete(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	n.WaitGone(t, namespace)
}
