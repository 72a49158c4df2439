package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

// ofNoNamespace is what both programs read and write that is in no namespace, whichever they watch.
var ofNoNamespace = []string{
	"", // discovery
	"stagesetpolicies", "namespaces", "selfsubjectaccessreviews", "subjectaccessreviews",
	"mutatingwebhookconfigurations", "validatingwebhookconfigurations",
}

// staysWithin checks that the programs of an installation asked for nothing since the mark but what is in the namespaces
// that it watches, in its own, or in none, and that nothing was refused.
func (i installation) staysWithin(t *testing.T, mark cluster.AuditMark) {
	t.Helper()
	for _, program := range []string{programReconciler, programAdmission} {
		for _, event := range mark.Since(t, cluster.ByAccount(i.namespace, program)) {
			within := event.Namespace == i.namespace || slices.Contains(i.watched, event.Namespace) ||
				event.Namespace == "" && slices.Contains(ofNoNamespace, event.Resource)
			if !within || event.Code == http.StatusForbidden {
				t.Errorf("the %s of %v asked for something else: %s", program, i.watched, event)
			}
		}
	}
}

// Several installations share a cluster: each handles the StageSets of its namespaces, and asks for nothing of another.
// Their roles are bound there alone, so that to ask would be refused.
func TestInstallationsOfDisjointNamespaces(t *testing.T) {
	s := setup(t)
	north, south, outside := s.tenant(t), s.tenant(t), s.tenant(t)
	inNorth, inSouth := s.install(t, north.namespace), s.install(t, south.namespace)
	// Parameters are looked for in the namespaces of the StageSets.
	policy := north.policy(t, "freeze", `
paramKind: {apiVersion: v1, kind: ConfigMap}
paramRef: {name: `+parameters+`, parameterNotFoundAction: Allow}
validations: [{name: frozen, expression: "params.data.value != 'yes'", message: nothing is released now}]`)
	files := map[string]string{"a.yaml": configMap("settings", "1")}
	mark := s.Audit(t)
	for _, i := range []installation{inNorth, inSouth} {
		i.bind(t, s.Cluster, programReconciler, "ClusterRole", "view", i.watched[0])
		i.bind(t, s.Cluster, programAdmission, "ClusterRole", "view", i.watched[0])
		i.run(t, s, "--watch-namespaces="+i.watched[0], policyConfig(t, "rules: {no-cross-namespace-refs: Off}"), "--leader-elect")
	}
	admission := s.startAdmissionOf(t, inNorth, []*tenant{north}, "--watch-namespaces="+north.namespace,
		policyConfig(t, "rules: {no-cross-namespace-refs: Off}"))
	for _, n := range []*tenant{north, south, outside} {
		n.source(t, "app", files)
		n.stageSet(t, "app", "retryInterval: 1s"+oneStage("app"))
	}
	ready := cluster.Condition(v1.ConditionReady, "True", v1.ReasonSucceeded)
	for _, n := range []*tenant{north, south} {
		n.wait(t, "app", ready)
	}
	// To depend on what another installation handles is to read it as the tenant.
	north.grant(t, south.namespace, deployer, "ClusterRole", "view")
	north.source(t, "guest", map[string]string{"a.yaml": configMap("guest", "1")})
	north.stageSet(t, "guest", fmt.Sprintf("dependsOn: [{name: app, namespace: %s}]%s", south.namespace, oneStage("guest")))
	north.wait(t, "guest", ready)

	north.applyIn(t, configMap(parameters, "yes"))
	north.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonPolicyViolation),
		messageHas(policy+"/frozen: nothing is released now"))

	// What is changed outside wakes nobody.
	outside.patch(t, cluster.Ref("v1", "Namespace", "", outside.namespace), `{"metadata":{"labels":{"tier":"gold"}}}`)
	north.delete(t, "app")
	north.gone(t, "app")
	if set := outside.wait(t, "app"); len(set.Status.Conditions) > 0 {
		t.Errorf("a StageSet that nobody watches has conditions: %+v", set.Status.Conditions)
	}

	// Each says in the status of a policy how it is there.
	if err := admission.Stop(); err != nil {
		t.Fatal(err)
	}
	s.startAdmissionOf(t, inSouth, []*tenant{south}, "--watch-namespaces="+south.namespace)
	s.WaitFor(t, cluster.Ref(v1alpha1.GroupVersion.String(), "StageSetPolicy", "", policy), func(live *unstructured.Unstructured) error {
		entries, _, err := unstructured.NestedSlice(live.Object, "status", "installations")
		if err != nil {
			return err
		}
		var names []string
		for _, entry := range entries {
			names = append(names, fmt.Sprint(entry.(map[string]any)["name"]))
		}
		slices.Sort(names)
		want := []string{inNorth.namespace + "/stageset", inSouth.namespace + "/stageset"}
		slices.Sort(want)
		if !slices.Equal(names, want) {
			return fmt.Errorf("the status has entries of %v, want %v", names, want)
		}
		return nil
	})
	inNorth.staysWithin(t, mark)
	inSouth.staysWithin(t, mark)
}

// T-18: an installation whose roles lack what a new version needs says so where it needs it: which of the reconciler's own
// permissions, and for whom. It goes on when the role is there.
func TestInstallationThatMayNotRequestTokens(t *testing.T) {
	s := setup(t)
	n := s.tenant(t)
	i := s.install(t, n.namespace)
	tokens := cluster.Ref("rbac.authorization.k8s.io/v1", "RoleBinding", n.namespace,
		i.namespace+"-"+programReconciler+"-"+programReconciler+"-tokens")
	if err := n.Client.Delete(t.Context(), tokens); err != nil {
		t.Fatal(err)
	}
	revision := n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	i.run(t, s, "--watch-namespaces="+n.namespace)
	n.stageSet(t, "app", "retryInterval: 1s"+oneStage("app"))
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonPermissionsMissing), messageHas(
		"the reconciler itself may not create serviceaccounts/token in namespace "+n.namespace+", so nothing can be done as "+
			"service account "+n.namespace+"/"+deployer))
	i.bind(t, s.Cluster, programReconciler, "ClusterRole", programReconciler+"-tokens", n.namespace)
	n.waitReady(t, "app", "app", revision)
}

// fenced applies a fence of the chart for an installation, until the end of the test.
func (i installation) fenced(t *testing.T, s *suite, name string) {
	t.Helper()
	mine := i.namespace + "-" + name
	s.Apply(t, strings.NewReplacer("stageset-"+name, mine, system, i.namespace).Replace(chartFile(t, "fence-"+name+".yaml")))
	for _, kind := range []string{"ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"} {
		s.deleteAfter(t, cluster.Ref("admissionregistration.k8s.io/v1", kind, "", mine))
	}
}

// The fences of the chart keep nothing from working: a release is applied and deleted, here and, once the audience is listed,
// on another cluster; and what they refuse is named.
func TestReleasesWithinTheFences(t *testing.T) {
	s := setup(t)
	n := s.remote(t)
	n.trusted(t)
	i := s.install(t, n.namespace)
	home := &tenant{suite: s, namespace: i.namespace}
	i.bind(t, s.Cluster, programReconciler, "ClusterRole", programReconciler+"-watched", i.namespace)
	i.bind(t, s.Cluster, programReconciler, "ClusterRole", programReconciler+"-tokens", i.namespace)
	home.account(t, deployer, "edit")
	files := map[string]string{"a.yaml": configMap("a", "1")}
	home.source(t, "app", files)
	revision := n.source(t, "app", files)
	i.fenced(t, s, "tokens")
	i.fenced(t, s, "inventories")
	n.inventoriesAreFenced(t)
	i.tokensAreFenced(t, s)
	i.run(t, s, "--watch-namespaces="+n.namespace+","+i.namespace)

	n.connection(t, nil)
	n.stageSet(t, "abroad", byConnection+oneStage("app"))
	n.wait(t, "abroad", cluster.Condition(v1.ConditionReady, "False", v1.ReasonPermissionsMissing),
		messageHas("for the audiences "+otherAudience+";"), messageHas("list it in rbac.tokenRequest.audiences of the chart"))
	home.stageSet(t, "app", oneStage("app"))
	home.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonPermissionsMissing),
		messageHas(programReconciler+" may not request tokens of accounts in namespace "+i.namespace))
	n.stageSet(t, "app", oneStage("app"))
	n.waitReady(t, "app", "app", revision)
	n.delete(t, "app")
	n.gone(t, "app")

	mine := i.namespace + "-tokens"
	s.Apply(t, strings.NewReplacer("stageset-tokens", mine, system, i.namespace, "'https://kubernetes.default.svc',",
		"'"+otherAudience+"', 'https://kubernetes.default.svc',").Replace(chartFile(t, "fence-tokens.yaml")))
	n.request(t, "abroad", "listed")
	n.waitReady(t, "abroad", "app", revision)
	n.there.WaitFor(t, n.configMap("a"))
}

// tokensAreFenced waits until the reconciler gets no token of the account in its own namespace.
func (i installation) tokensAreFenced(t *testing.T, s *suite) {
	t.Helper()
	reconciler, err := client.New(s.TokenConfig(t, i.namespace, programReconciler), client.Options{Scheme: s.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: i.namespace, Name: deployer}}
	cluster.Eventually(t, func(ctx context.Context) error {
		hour := authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](3600)}
		err := reconciler.SubResource("token").Create(ctx, account, &authenticationv1.TokenRequest{Spec: hour}, client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "may not request tokens of accounts") {
			return fmt.Errorf("a token can be requested: %v", err)
		}
		return nil
	})
}

// inventoriesAreFenced waits until somebody who may do everything in the namespace may not write an inventory.
func (n *tenant) inventoriesAreFenced(t *testing.T) {
	t.Helper()
	n.account(t, "mighty", "cluster-admin")
	mighty, err := client.New(n.TokenConfig(t, n.namespace, "mighty"), client.Options{Scheme: n.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, func(ctx context.Context) error {
		forged := &v1.StageInventory{
			ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: "forged"},
			Spec:       v1.StageInventorySpec{StageSet: "app", Stage: "app", Target: v1.InventoryTarget{Cluster: v1.ClusterLocal}},
		}
		if err := mighty.Create(ctx, forged, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "only "+programReconciler) {
			return fmt.Errorf("an inventory can be written: %v", err)
		}
		return nil
	})
}

// At its start a program names what it may not do in which of its namespaces (T-18).
func TestStartNamesTheNamespaceOfAMissingPermission(t *testing.T) {
	s := setup(t)
	bound, unbound := s.Namespace(t, "bound"), s.Namespace(t, "unbound")
	i := s.install(t, bound)
	_, err := process.Launch(t.Context(), i.options(t, s, "--watch-namespaces="+bound+","+unbound))
	if err == nil {
		t.Fatal("it is ready")
	}
	for _, want := range []string{
		"this account may not list stagesets.stages.metio.wtf in namespace " + unbound,
		"this account may not create events.events.k8s.io in namespace " + unbound,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the output lacks %q:\n%v", want, err)
		}
	}
	for _, granted := range []string{"in namespace " + bound, "may not list namespaces"} {
		if strings.Contains(err.Error(), granted) {
			t.Errorf("the output names what is granted, %q:\n%v", granted, err)
		}
	}
}
