package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	v1 "github.com/stageset/stageset/api/v1"
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
paramRef: {name: freeze, parameterNotFoundAction: Allow}
validations: [{name: frozen, expression: "params.data.value != 'yes'", message: nothing is released now}]`)
	files := map[string]string{"a.yaml": configMap("settings", "1")}
	mark := s.Audit(t)
	for _, i := range []installation{inNorth, inSouth} {
		i.bind(t, s.Cluster, programReconciler, "ClusterRole", "view", i.watched[0])
		i.bind(t, s.Cluster, programAdmission, "ClusterRole", "view", i.watched[0])
		i.run(t, s, "--watch-namespaces="+i.watched[0], policyConfig(t, "rules: {no-cross-namespace-refs: Off}"), "--leader-elect")
	}
	s.startAdmissionOf(t, inNorth, []*tenant{north}, "--watch-namespaces="+north.namespace,
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

	north.applyIn(t, configMap("freeze", "yes"))
	north.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonPolicyViolation),
		messageHas(policy+"/frozen: nothing is released now"))

	// What is changed outside wakes nobody.
	outside.patch(t, cluster.Ref("v1", "Namespace", "", outside.namespace), `{"metadata":{"labels":{"tier":"gold"}}}`)
	north.delete(t, "app")
	north.gone(t, "app")
	if set := outside.wait(t, "app"); len(set.Status.Conditions) > 0 {
		t.Errorf("a StageSet that nobody watches has conditions: %+v", set.Status.Conditions)
	}
	inNorth.staysWithin(t, mark)
	inSouth.staysWithin(t, mark)
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
