package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// A quota, admission and RBAC refuse alike; what is said tells them apart, and what to do about each.
func TestRefusalSaysWhoRefusesAndWhatToDo(t *testing.T) {
	rule := "%s has the permission: what refuses is a quota, a policy or another rule of the cluster; change the object, or " +
		"have the rule changed"
	for name, test := range map[string]struct {
		setup    func(t *testing.T, n *tenant)
		manifest string
		reason   string
		want     []string
		advice   string // %s is the account
	}{
		"a quota that is used up": {
			setup: func(t *testing.T, n *tenant) {
				n.Apply(t, "{apiVersion: v1, kind: ResourceQuota, metadata: {name: none, namespace: "+n.namespace+"}, "+
					"spec: {hard: {count/secrets: '0'}}}")
				n.WaitFor(t, cluster.Ref("v1", "ResourceQuota", n.namespace, "none"), field("0", "status", "hard", "count/secrets"))
			},
			manifest: "apiVersion: v1\nkind: Secret\nmetadata: {name: refused}\n",
			reason:   v1.ReasonApplyFailed, want: []string{"stage app: Secret", "exceeded quota: none"}, advice: rule,
		},
		"an admission plugin": {
			setup: func(t *testing.T, n *tenant) {
				n.patch(t, cluster.Ref("v1", "Namespace", "", n.namespace),
					`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`)
			},
			manifest: "apiVersion: v1\nkind: Pod\nmetadata: {name: refused}\nspec: {containers: [{name: app, image: app}]}\n",
			reason:   v1.ReasonApplyFailed, want: []string{"stage app: Pod", "violates PodSecurity"}, advice: rule,
		},
		"a permission that is missing": {
			manifest: "apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: refused}\nspec: {controller: a/b}\n",
			reason:   v1.ReasonPermissionsMissing,
			want:     []string{"stage app: get, create, patch, delete ingressclasses.networking.k8s.io (refused)"},
			advice:   "roles have to allow it to %s",
		},
		"a field that does not exist": {
			manifest: "apiVersion: v1\nkind: Service\nmetadata: {name: refused}\nspec: {prots: [{port: 80}]}\n",
			reason:   v1.ReasonApplyFailed, want: []string{"stage app: Service", ".spec.prots: field not declared in schema"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := shared(t).tenant(t)
			if test.setup != nil {
				test.setup(t, n)
			}
			n.source(t, "app", map[string]string{"first.yaml": configMap("first", "1"), "refused.yaml": test.manifest})
			mark := n.Audit(t)
			n.stageSet(t, "app", oneStage("app"))
			if test.advice != "" {
				account := fmt.Sprintf("system:serviceaccount:%s:%s", n.namespace, deployer)
				test.want = append(test.want, fmt.Sprintf(test.advice, account))
			}
			if test.reason != v1.ReasonPermissionsMissing { // which are those of all objects of a kind
				test.want = append(test.want, "refused (refused.yaml:1): ")
			}
			n.refusedWhole(t, "app", test.reason, test.want...)
			n.wroteNothing(t, mark)
		})
	}
}

// A webhook that cannot be called refuses one object, which is named, and may be there again in a moment.
func TestObjectOfABrokenWebhookIsNamed(t *testing.T) {
	n := shared(t).tenant(t)
	n.Apply(t, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: e2e-%[1]s}
webhooks:
- name: broken.e2e.metio.wtf
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  clientConfig: {service: {name: missing, namespace: %[1]s}}
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [services]}]`, n.namespace))
	webhook := cluster.Ref("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", "e2e-"+n.namespace)
	n.deleteAfter(t, webhook)
	probe := cluster.Ref("v1", "Service", n.namespace, "probe")
	if err := unstructured.SetNestedSlice(probe.Object, []any{map[string]any{"port": int64(80)}}, "spec", "ports"); err != nil {
		t.Fatal(err)
	}
	n.awaitBroken(t, probe)

	revision := n.source(t, "app", map[string]string{
		"web.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80}]}\n",
	})
	n.stageSet(t, "app", oneStage("app"))
	n.wait(t, "app", cluster.Condition(v1.ConditionReconciling, "True", v1.ReasonApplyFailed),
		messageHas("stage app: Service "+n.namespace+"/web (web.yaml:1): "), messageHas("broken.e2e.metio.wtf"))
	if err := n.Client.Delete(t.Context(), webhook); err != nil {
		t.Fatal(err)
	}
	n.waitReady(t, "app", "app", revision)
}

// awaitBroken waits until an object cannot be made because of a webhook.
func (n *tenant) awaitBroken(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	cluster.Eventually(t, func(ctx context.Context) error {
		err := n.Client.Create(ctx, object.DeepCopy(), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "broken.e2e.metio.wtf") {
			return fmt.Errorf("making it gives %w, want the webhook to be called", err)
		}
		return nil
	})
}
