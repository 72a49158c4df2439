package e2e

import (
	"strings"
	"testing"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// toOtherAsNobody is toOther for a StageSet that names no account.
func toOtherAsNobody(source, secret string) string {
	return strings.Replace(toOther(source, secret), "serviceAccountName: "+deployer+"\n", "", 1)
}

// mayEdit lets the account whose token kubeconfigs have do on the other cluster what its role allows in the namespace.
func (n *remote) mayEdit(t *testing.T) {
	t.Helper()
	n.there.Apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: hub, namespace: `+n.namespace+`}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{kind: ServiceAccount, name: `+hub+`, namespace: default}]`)
}

// A StageSet that names no account goes to another cluster where the reconciler's own identity is allowed, and from nowhere
// else: the reconciler reads the Secret, and the kubeconfig's user acts there as himself. What was applied so is deleted
// under the same condition.
func TestRemoteTargetWithoutAnAccount(t *testing.T) {
	s := setup(t)
	allowed, elsewhere := s.remote(t), s.remote(t)
	i := s.install(t, allowed.namespace, elsewhere.namespace)
	watch := "--watch-namespaces=" + allowed.namespace + "," + elsewhere.namespace
	allow := "--allow-controller-identity=" + allowed.namespace
	files := map[string]string{"a.yaml": configMap("a", "1")}
	revision := allowed.source(t, "app", files)
	for _, n := range []*remote{allowed, elsewhere} {
		i.bind(t, s.Cluster, programReconciler, "ClusterRole", "edit", n.namespace)
		n.source(t, "app", files)
	}
	here, there := s.Audit(t), allowed.there.Audit(t)
	reconciler := i.run(t, s, watch, allow)
	allowed.stageSet(t, "app", toOtherAsNobody("app", "remote"))
	elsewhere.stageSet(t, "app", toOtherAsNobody("app", "remote"))
	elsewhere.refusedWhole(t, "app", v1.ReasonPolicyViolation,
		"service-account-required/kubeconfig: kubeConfig is read as spec.serviceAccountName")
	allowed.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonPermissionsMissing),
		messageHas("roles have to allow it to the user that kubeConfig leads to"))
	allowed.mayEdit(t)
	allowed.waitReady(t, "app", "app", revision)
	allowed.there.WaitFor(t, allowed.configMap("a"))
	allowed.absent(t, allowed.configMap("a"))
	for _, event := range there.Since(t, cluster.InNamespace(allowed.namespace), cluster.Writes) {
		if event.Resource == "configmaps" && (event.User != hubUser || event.Impersonated != "") {
			t.Errorf("%s by %q as %q, want the kubeconfig's user himself", event, event.User, event.Impersonated)
		}
	}

	// No other identity is used by way of a ConfigMap, not even where the reconciler's own is allowed.
	allowed.stageSet(t, "token", strings.Replace(toOtherAsNobody("app", "remote"), "secretRef", "configMapRef", 1))
	allowed.refusedWhole(t, "token", v1.ReasonPolicyViolation, "kubeconfig-one-reference/configmap-account")

	// The inventory counts where the StageSet would: not any more, and then again.
	if err := reconciler.Stop(); err != nil {
		t.Fatal(err)
	}
	reconciler = i.run(t, s, watch, policyConfig(t,
		"rules: {service-account-required: \"Off\", kubeconfig-one-reference: \"Off\"}"))
	allowed.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonServiceAccountRequired))
	elsewhere.refusedWhole(t, "app", v1.ReasonServiceAccountRequired, "spec.kubeConfig is read as spec.serviceAccountName")
	allowed.refusedWhole(t, "token", v1.ReasonServiceAccountRequired, "spec.kubeConfig.configMapRef is read as")
	allowed.delete(t, "app")
	allowed.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonTargetUnreachable),
		messageHas("--allow-controller-identity does not allow"))
	allowed.there.WaitFor(t, allowed.configMap("a"))
	if err := reconciler.Stop(); err != nil {
		t.Fatal(err)
	}
	i.run(t, s, watch, allow)
	allowed.gone(t, "app")
	allowed.there.WaitGone(t, allowed.configMap("a"))

	for _, event := range here.Since(t, cluster.InNamespace(elsewhere.namespace)) {
		if event.Resource == "secrets" && strings.HasSuffix(event.User, ":"+programReconciler) {
			t.Errorf("the reconciler's own identity, where it is not allowed: %s", event)
		}
	}
}
