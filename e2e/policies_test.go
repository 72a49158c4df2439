package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

const policyVersion = "stages.metio.wtf/v1alpha1"

// policy stores a policy, until the end of the test, that is for the StageSets of the tenant alone. A name says whose it is.
func (n *tenant) policy(t testing.TB, name, spec string) string {
	t.Helper()
	name = n.namespace + "-" + name
	n.Apply(t, n.policyYAML(t, name, spec))
	n.deleteAfter(t, cluster.Ref(policyVersion, "StageSetPolicy", "", name))
	return name
}

func (n *tenant) policyYAML(t testing.TB, name, spec string) string {
	t.Helper()
	return objectYAML(t, policyVersion, "StageSetPolicy", "", name,
		fmt.Sprintf("matchConstraints: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}}\n%s", n.namespace, spec))
}

const twoStagesWithInterval = `
validations:
- name: interval
  expression: has(object.spec.interval)
  message: 'set spec.interval: here everything says how often it is looked at'
  fieldPath: spec.interval
- name: stages
  expression: object.spec.stages.size() >= 2
  message: have at least two stages
  messageExpression: "'have at least two stages, not ' + string(object.spec.stages.size())"
  fieldPath: spec.stages
`

// A policy of an admin is one of the built-in kind: kubectl says all violations at once, of both, and the reconciler says
// the same about what was stored without the webhook. Tightened later, it applies from the next pass on, and what runs is
// left as it is; relaxed, everything goes on.
func TestPolicyOfAnAdmin(t *testing.T) {
	s := setup(t)
	s.ownReconciler(t, policyConfig(t, defaultPolicyConfig))
	n := s.tenant(t)
	revision := n.source(t, "app", map[string]string{"settings.yaml": configMap("settings", "1")})
	n.stageSet(t, "before", oneStage("app"))
	n.waitReady(t, "before", "app", revision)
	settings := cluster.Ref("v1", "ConfigMap", n.namespace, "settings")
	running := n.WaitFor(t, settings)

	name := n.policy(t, "production", twoStagesWithInterval)
	want := []string{
		name + "/interval: set spec.interval: here everything says how often it is looked at",
		name + "/stages: have at least two stages, not 1",
	}
	n.wait(t, "before", cluster.Condition(v1.ConditionReady, "False", v1.ReasonPolicyViolation),
		messageHas(strings.Join(want, "; ")))
	if now := n.WaitFor(t, settings); now.GetResourceVersion() != running.GetResourceVersion() {
		t.Errorf("what ran before the policy has changed:\n%s", cmp.Diff(running.Object, now.Object))
	}

	s.startAdmission(t, n)
	output, err := s.kubectl(t, n.stageSetYAML(t, "after", "stages: [{name: app, sourceRef: {kind: GitRepository, name: app}}]"),
		"apply", "-f", "-")
	if err == nil {
		t.Fatalf("kubectl applied it: %s", output)
	}
	account := "service-account-required/stages: "
	violations := denied(t, "after", output)
	if len(violations) != 3 || !strings.HasPrefix(violations[0], account) && !strings.HasPrefix(violations[2], account) {
		t.Fatalf("kubectl says %q", violations)
	}
	for _, violation := range want {
		if !strings.Contains(output, ": "+violation+"\n") {
			t.Errorf("kubectl lacks %s:\n%s", violation, output)
		}
	}

	n.policy(t, "production", strings.ReplaceAll(twoStagesWithInterval, "validations:", "validationActions: [Warn]\nvalidations:"))
	n.waitReady(t, "before", "app", revision)
	cluster.Eventually(t, func(context.Context) error {
		output, err = s.kubectl(t, n.stageSetYAML(t, "after", oneStage("app")), "apply", "-f", "-")
		if err != nil {
			return fmt.Errorf("refused by a policy that warns: %s", output)
		}
		return nil
	})
	for _, violation := range want {
		if !strings.Contains(output, "Warning: "+violation+"\n") {
			t.Errorf("kubectl does not warn of %s:\n%s", violation, output)
		}
	}
}

// No pass begins before all policies are compiled, those that are stored as well: what was stored while nobody looked is
// refused by the first.
func TestRestartLetsNothingThrough(t *testing.T) {
	s := setup(t)
	s.stopReconciler(t)
	n := s.tenant(t)
	n.source(t, "app", map[string]string{"settings.yaml": configMap("settings", "1")})
	name := n.policy(t, "nothing", "validations: [{name: at-all, expression: 'false', message: nothing is released here}]")
	n.stageSet(t, "app", oneStage("app"))
	mark := s.Audit(t)
	s.ownReconciler(t, policyConfig(t, defaultPolicyConfig))
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonPolicyViolation),
		messageHas(name+"/at-all: nothing is released here"))
	n.wroteNothing(t, mark)
}

// The parameters of a policy take effect when they change, and what it means that there are none is the policy's to say.
func TestParametersOfAPolicy(t *testing.T) {
	s := setup(t)
	s.ownReconciler(t, policyConfig(t, defaultPolicyConfig))
	n := s.tenant(t)
	revision := n.source(t, "app", map[string]string{"settings.yaml": configMap("settings", "1")})
	parameters := n.namespace + "-freeze"
	frozen := func(until string) {
		t.Helper()
		n.Apply(t, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: %s}, data: {frozen: %q}}",
			parameters, system, until))
	}
	object := cluster.Ref("v1", "ConfigMap", system, parameters)
	spec := func(action string) string {
		return fmt.Sprintf(`
paramKind: {apiVersion: v1, kind: ConfigMap}
paramRef: {name: %s, namespace: %s, parameterNotFoundAction: %s}
validations: [{name: frozen, expression: "params.data.frozen != 'yes'", message: nothing is released now}]`,
			parameters, system, action)
	}
	frozen("yes")
	s.deleteAfter(t, object)
	name := n.policy(t, "freeze", spec("Deny"))
	n.stageSet(t, "app", oneStage("app"))
	refused := func(message string) {
		t.Helper()
		n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonPolicyViolation), messageHas(message))
	}
	refused(name + "/frozen: nothing is released now")
	frozen("no")
	n.waitReady(t, "app", "app", revision)
	frozen("yes")
	refused(name + "/frozen: nothing is released now")
	if err := s.Client.Delete(t.Context(), object.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	refused(fmt.Sprintf("%s/paramRef: cannot be evaluated: params ConfigMap %s/%s: there is none", name, system, parameters))
	n.policy(t, "freeze", spec("Allow"))
	n.waitReady(t, "app", "app", revision)
}

// A policy that selects namespaces by their labels applies to what is stored there as soon as the labels are others.
func TestPolicyFollowsTheLabelsOfANamespace(t *testing.T) {
	s := setup(t)
	s.ownReconciler(t, policyConfig(t, defaultPolicyConfig))
	n := s.tenant(t)
	revision := n.source(t, "app", map[string]string{"settings.yaml": configMap("settings", "1")})
	n.Apply(t, objectYAML(t, policyVersion, "StageSetPolicy", "", n.namespace, fmt.Sprintf(`
matchConstraints: {namespaceSelector: {matchLabels: {frozen: %[1]s}}}
validations: [{name: frozen, expression: 'false', message: nothing is released here}]`, n.namespace)))
	n.deleteAfter(t, cluster.Ref(policyVersion, "StageSetPolicy", "", n.namespace))
	n.stageSet(t, "app", oneStage("app"))
	n.waitReady(t, "app", "app", revision)
	n.Apply(t, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %[1]s, labels: {frozen: %[1]s}}}", n.namespace))
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonPolicyViolation),
		messageHas(n.namespace+"/frozen: nothing is released here"))
	n.Apply(t, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %[1]s, labels: {frozen: thawed}}}", n.namespace))
	n.waitReady(t, "app", "app", revision)
}

// Only a policy that works is stored, and what is wrong with one is said where it is. Who stored one without the webhook has
// it decided by its failurePolicy, and can still delete it.
func TestBrokenPolicy(t *testing.T) {
	const broken = `
validations:
- {name: misspelt, expression: "object.spec.suspnd != true", message: m}
- name: unfinished
  expression: |-
    object.spec.stages.all(s,
      s.name != )
  message: m
tests: [{name: t, object: {spec: {suspend: true}}, expect: deny}]`
	s := setup(t)
	n := s.tenant(t)
	name := n.policy(t, "stored", broken)
	s.startAdmission(t, n)
	output, err := s.kubectl(t, n.policyYAML(t, n.namespace+"-new", broken), "create", "-f", "-")
	if err == nil {
		t.Fatalf("kubectl created it: %s", output)
	}
	for _, part := range []string{
		"* spec.validations[misspelt].expression: line 1, column 12: undefined field 'suspnd'",
		"* spec.validations[unfinished].expression: line 2, column 13: Syntax error",
	} {
		if !strings.Contains(output, part) {
			t.Errorf("kubectl lacks %q:\n%s", part, output)
		}
	}
	output, err = s.kubectl(t, n.policyYAML(t, n.namespace+"-failing", `
validations: [{name: suspended, expression: "!object.spec.?suspend.orValue(false)", message: m}]
tests: [{name: running, object: {spec: {suspend: false}}, expect: deny}]`), "create", "-f", "-")
	if err == nil || !strings.Contains(output, "spec.tests[running]: expected deny, but it is allowed") {
		t.Errorf("a policy whose test fails: %v\n%s", err, output)
	}

	output, err = s.kubectl(t, n.stageSetYAML(t, "app", oneStage("app")), "apply", "-f", "-")
	if err == nil || !strings.Contains(output, name+"/unfinished: does not compile: ") {
		t.Errorf("a policy that was stored broken: %v\n%s", err, output)
	}
	if output, err := s.kubectl(t, "", "label", "stagesetpolicy", name, "looked=at"); err != nil {
		t.Errorf("labelling a broken policy: %s", output)
	}
	if output, err := s.kubectl(t, "", "delete", "stagesetpolicy", name); err != nil {
		t.Errorf("deleting a broken policy: %s", output)
	}
}

// A rule may ask what the requester may do: the API server answers, and the reconciler, whom nobody asks, leaves it out.
func TestPolicyAsksWhatTheRequesterMayDo(t *testing.T) {
	s := setup(t)
	n := s.tenant(t)
	s.startAdmission(t, n)
	output, err := s.kubectl(t, n.policyYAML(t, n.namespace+"-author", `
validations:
- name: may-release
  expression: >-
    authorizer.group('stages.metio.wtf').resource('releases').namespace(request.namespace).check('approve').allowed()
  message: only who may approve releases
  reason: Forbidden`), "create", "-f", "-")
	if err != nil {
		t.Fatal(output)
	}
	n.deleteAfter(t, cluster.Ref(policyVersion, "StageSetPolicy", "", n.namespace+"-author"))
	if !strings.Contains(output, "Warning: policy "+n.namespace+"-author: spec.validations[may-release].expression: "+
		"reads who asks, or how: it is evaluated at admission alone") {
		t.Errorf("kubectl does not warn:\n%s", output)
	}
	n.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: jane, namespace: %s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{kind: User, name: jane}]`, n.namespace))
	cluster.Eventually(t, func(context.Context) error {
		output, err = s.kubectl(t, n.stageSetYAML(t, "app", oneStage("app")), "apply", "--dry-run=server", "--as=jane", "-f", "-")
		if err == nil || !strings.Contains(output, "Forbidden") || !strings.Contains(output, "only who may approve releases") {
			return fmt.Errorf("jane is told: %s", output)
		}
		return nil
	})
	if output, err := s.kubectl(t, n.stageSetYAML(t, "app", oneStage("app")), "apply", "-f", "-"); err != nil {
		t.Errorf("the administrator is refused: %s", output)
	}
}

// What a policy would deny is in its status before it denies anything, with what else there is to say about it.
func TestStatusOfAPolicy(t *testing.T) {
	s := setup(t)
	n := s.tenant(t)
	n.stageSet(t, "one", oneStage("app"))
	n.stageSet(t, "two", twoStages("app"))
	name := n.policy(t, "status", `
validationActions: [Warn]
validations:
- {name: stages, expression: "object.spec.stages.size() >= 2", message: too few stages, fieldPath: spec.stages}
- {name: nobody, expression: "request.userInfo.username != 'nobody'", message: not by nobody}
tests:
- {name: good, object: {spec: {stages: [{name: a, sourceRef: {name: x}}, {name: b, sourceRef: {name: x}}]}}, expect: allow}`)
	s.startAdmission(t, n)
	ref := cluster.Ref(policyVersion, "StageSetPolicy", "", name)
	status := n.installationStatus(t, ref, condition("Ready", "True", "Ready"), condition("Effective", "True", "Matches"),
		violations(1, "Warn"))
	if diff := cmp.Diff(map[string]any{
		"rules": []any{
			map[string]any{"name": "stages", "enforcedAt": []any{"Admission", "Reconcile"}},
			map[string]any{"name": "nobody", "enforcedAt": []any{"Admission"}},
		},
		"tests": map[string]any{"passed": int64(1)},
		"examples": []any{map[string]any{
			"namespace": n.namespace, "name": "one", "message": name + "/stages: too few stages",
		}},
	}, map[string]any{
		"rules": status["rules"], "tests": status["tests"], "examples": status["audit"].(map[string]any)["examples"],
	}); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}

	// A namespace that is not there any more as far as the policy is concerned, and a parameter that is missing.
	n.Apply(t, objectYAML(t, policyVersion, "StageSetPolicy", "", name, `
matchConstraints: {namespaceSelector: {matchLabels: {nobody: has-this}}}
paramKind: {apiVersion: v1, kind: ConfigMap}
paramRef: {name: `+name+`, namespace: `+system+`}
validations:
- {name: stages, expression: "object.spec.stages.size() >= 2", message: too few stages, fieldPath: spec.stages}`))
	n.installationStatus(t, ref, condition("Ready", "False", "ParamsNotFound"), condition("Effective", "False", "NoNamespace"),
		violations(0, ""))
	n.Apply(t, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: %s}}", name, system))
	s.deleteAfter(t, cluster.Ref("v1", "ConfigMap", system, name))
	n.installationStatus(t, ref, condition("Ready", "True", "Ready"))
	n.Apply(t, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {nobody: has-this}}}", n.namespace))
	n.installationStatus(t, ref, condition("Effective", "True", "Matches"), violations(1, "Deny"))
}

// installationStatus waits until the entry of the installation in the status of a policy is as all wants have it.
func (n *tenant) installationStatus(t testing.TB, ref *unstructured.Unstructured, wants ...func(map[string]any) error) map[string]any {
	t.Helper()
	var found map[string]any
	n.WaitFor(t, ref, func(live *unstructured.Unstructured) error {
		entries, _, err := unstructured.NestedSlice(live.Object, "status", "installations")
		if err != nil || len(entries) != 1 {
			return fmt.Errorf("%d installations in the status (%v)", len(entries), err)
		}
		found = entries[0].(map[string]any)
		if found["name"] != system+"/stageset" || found["observedGeneration"] != live.GetGeneration() {
			return fmt.Errorf("the entry is of %v at generation %v", found["name"], found["observedGeneration"])
		}
		for _, want := range wants {
			if err := want(found); err != nil {
				return err
			}
		}
		return nil
	})
	return found
}

func condition(kind, status, reason string) func(map[string]any) error {
	return func(entry map[string]any) error {
		conditions, _, err := unstructured.NestedSlice(entry, "conditions")
		if err != nil {
			return err
		}
		for _, item := range conditions {
			if c := item.(map[string]any); c["type"] == kind && (c["status"] != status || c["reason"] != reason) {
				return fmt.Errorf("%s is %v (%v): %v", kind, c["status"], c["reason"], c["message"])
			} else if c["type"] == kind {
				return nil
			}
		}
		return fmt.Errorf("there is no condition %s", kind)
	}
}

// violations holds if the audit found that many, which lead to the action.
func violations(count int64, action string) func(map[string]any) error {
	return func(entry map[string]any) error {
		got, _, err := unstructured.NestedInt64(entry, "audit", "violations")
		if err != nil || got != count {
			return fmt.Errorf("the audit found %d violations, want %d (%v)", got, count, err)
		}
		if by, _, err := unstructured.NestedInt64(entry, "audit", "byAction", action); err != nil || by != count {
			return fmt.Errorf("%d violations lead to %s, want %d (%v)", by, action, count, err)
		}
		return nil
	}
}
