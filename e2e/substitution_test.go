package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// withVariables is YAML of a spec of two stages that take values from a ConfigMap and a Secret.
const withVariables = `
serviceAccountName: ` + deployer + `
stages:
- name: one
  path: one
  sourceRef: {kind: GitRepository, name: app}
  postBuild: &values
    substitute: {COLOR: blue}
    substituteFrom: [{kind: ConfigMap, name: cluster}, {kind: Secret, name: token}, {kind: ConfigMap, name: none, optional: true}]
- name: two
  path: two
  sourceRef: {kind: GitRepository, name: app}
  postBuild: *values
`

// variables makes the ConfigMap and the Secret that withVariables names.
func (n *tenant) variables(t testing.TB, tenantNumber, token string) {
	t.Helper()
	n.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: cluster, namespace: %[1]s}
data: {TENANT: %[2]q, COLOR: red, app.properties: not a variable}
---
apiVersion: v1
kind: Secret
metadata: {name: token, namespace: %[1]s}
stringData: {TOKEN: %[3]q}`, n.namespace, tenantNumber, token))
}

// T-90, T-91, T-93, T-94: a text stays a text, what opts out stays as it is, and each reference is read once in a pass,
// whatever uses it. A value that changes is applied at the next pass, in all stages.
func TestVariablesAreSubstituted(t *testing.T) {
	n := shared(t).tenant(t)
	n.variables(t, "004", "hunter22")
	// As many objects as stages have, so that reading for each of them would show.
	many := make([]string, 40)
	for i := range many {
		many[i] = configMap(fmt.Sprintf("many-%d", i), "${TENANT} ${TOKEN} ${COLOR}")
	}
	revision := n.source(t, "app", map[string]string{
		"one/settings.yaml": "apiVersion: v1\nkind: ConfigMap\n" +
			"metadata:\n  name: settings\n  labels: {tenant: '${TENANT}'}\n  annotations: {tenant: '${TENANT}'}\n" +
			"data:\n  value: '${COLOR}:${TOKEN}:${OTHER:=none}:$${HOME}'\n  nginx: '\\.(?:a|b)$'\n",
		"one/script.yaml": "apiVersion: v1\nkind: ConfigMap\n" +
			"metadata: {name: script, annotations: {kustomize.toolkit.fluxcd.io/substitute: disabled}}\n" +
			"data: {value: 'cd ${HOME}; echo ${x^^}'}\n",
		"one/secret.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: derived}\nstringData: {url: 'https://u:${TOKEN}@x'}\n",
		"two/many.yaml":   documents(many...),
	})
	n.stageSet(t, "app", withVariables)
	n.waitReady(t, "app", "app", revision)
	n.hasValue(t, "settings", "blue:hunter22:none:${HOME}")
	n.hasValue(t, "script", "cd ${HOME}; echo ${x^^}")
	n.hasValue(t, "many-7", "004 hunter22 blue")
	var settings corev1.ConfigMap
	n.get(t, n.namespace, "settings", &settings)
	if settings.Labels["tenant"] != "004" || settings.Annotations["tenant"] != "004" || settings.Data["nginx"] != `\.(?:a|b)$` {
		t.Errorf("ConfigMap settings is %+v", settings)
	}
	var derived corev1.Secret
	n.get(t, n.namespace, "derived", &derived)
	if got := string(derived.Data["url"]); got != "https://u:hunter22@x" {
		t.Errorf("Secret derived has url %q", got)
	}

	n.variables(t, "005", "hunter22")
	mark := n.Audit(t)
	n.request(t, "app", "changed")
	n.wait(t, "app", handled("changed"), cluster.Condition(v1.ConditionReady, "True", v1.ReasonSucceeded))
	n.hasValue(t, "many-7", "005 hunter22 blue")
	if written := n.written(t, mark, deployer); len(written) != 41 || written[0] != "patch configmaps/settings" {
		t.Errorf("writes: %v, want settings, and then the 40 of stage two", written)
	}
	want := []string{"configmaps/cluster 200", "configmaps/none 404", "secrets/token 200"}
	if diff := cmp.Diff(want, n.readValues(t, mark)); diff != "" {
		t.Errorf("reads of values in a pass (-want +got):\n%s", diff)
	}
	checkOwnRequests(t, n.suite)
}

// readValues are the reads of what withVariables names since the mark, sorted, with the status.
func (n *tenant) readValues(t *testing.T, mark cluster.AuditMark) []string {
	t.Helper()
	var reads []string
	for _, event := range mark.Since(t, n.by(deployer)) {
		if event.Verb == "get" && slices.Contains([]string{"cluster", "none", "token"}, event.Name) {
			reads = append(reads, fmt.Sprintf("%s/%s %d", event.Resource, event.Name, event.Code))
		}
	}
	slices.Sort(reads)
	return reads
}

// T-06: what an account may not read is not rendered for it, and nothing else is rendered either. Once it may, the release
// goes on by itself.
func TestVariablesAreReadAsTheTenant(t *testing.T) {
	n := shared(t).bareTenant(t)
	n.account(t, deployer)
	n.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: no-secrets, namespace: %s}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get, list, create, patch, delete]}
- {apiGroups: [source.toolkit.fluxcd.io], resources: [gitrepositories], verbs: [get]}`, n.namespace))
	n.grant(t, n.namespace, deployer, "Role", "no-secrets")
	n.variables(t, "004", "hunter22")
	revision := n.source(t, "app", map[string]string{
		"one/settings.yaml": configMap("settings", "${TOKEN}"), "two/more.yaml": configMap("more", "${TENANT}"),
	})
	mark := n.Audit(t)
	n.stageSet(t, "app", withVariables)
	n.refusedWhole(t, "app", v1.ReasonAccessDenied, "stage one: postBuild: substituteFrom: ServiceAccount "+n.namespace+"/"+
		deployer+" may not get Secret "+n.namespace+"/token: grant it get on secrets named token in namespace "+n.namespace)
	n.wroteNothing(t, mark)
	n.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: one-secret, namespace: %s}
rules: [{apiGroups: [""], resources: [secrets], resourceNames: [token], verbs: [get]}]`, n.namespace))
	n.grant(t, n.namespace, deployer, "Role", "one-secret")
	n.waitReady(t, "app", "app", revision)
	n.hasValue(t, "settings", "hunter22")
}

// I8: whoever quotes an object, nobody reads the value of a Secret in what we say of it; and what is missing or wrong is
// named, all of it at once.
func TestValuesOfSecretsAreNotTold(t *testing.T) {
	const canary = "canary-7Vq1"
	n := shared(t).tenant(t)
	n.variables(t, "004", canary)
	n.source(t, "app", goodFiles)
	n.stageSet(t, "app", withVariables)
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "True", v1.ReasonSucceeded))
	cases := map[string]struct {
		manifest string
		reason   string
		want     []string
	}{
		"the API server": {
			"apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {type: '${TOKEN}', ports: [{port: 80}]}\n",
			v1.ReasonApplyFailed, []string{"one/x.yaml:1", `spec.type: Unsupported value: "[…]"`},
		},
		"a name": {
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 'x-${TOKEN}'}\n",
			v1.ReasonBuildFailed, []string{"metadata.name: TOKEN is the value of a Secret"},
		},
		"a Secret that is none": {
			"apiVersion: v1\nkind: Secret\nmetadata: {name: x}\ndata: {k: '${TOKEN}'}\n",
			v1.ReasonBuildFailed, []string{`the value of "k" is not base64`},
		},
		"what is missing": {
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, labels: {a: '${NO}', b: '${TOKEN}'}}\ndata: {c: '${NEITHER} ${x^^}'}\n",
			v1.ReasonBuildFailed, []string{
				"ConfigMap x (one/x.yaml:1): data.c: no value for NEITHER; ", `data.c: "${x^^}" is neither ${name} nor `,
				"metadata.labels.a: no value for NO; ",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			revision := n.source(t, "app", map[string]string{"one/x.yaml": tc.manifest, "two/config.yaml": configMap("more", "1")})
			predicates := []cluster.Predicate{
				n.revision("lastAttemptedRevisions", "app", revision), cluster.Condition(v1.ConditionReady, "False", tc.reason),
			}
			for _, text := range tc.want {
				predicates = append(predicates, messageHas(text))
			}
			set := n.wait(t, "app", predicates...)
			n.waitEvent(t, "app", "Warning", tc.reason, tc.want[0])
			if text := fmt.Sprintf("%+v", set.Status); strings.Contains(text, canary) {
				t.Errorf("status %s", text)
			}
		})
	}
	n.nowhereTold(t, canary)
}

// nowhereTold checks that no event of the namespace and no line of the reconciler's log has the text.
func (n *tenant) nowhereTold(t *testing.T, text string) {
	t.Helper()
	var events eventsv1.EventList
	if err := n.Client.List(context.Background(), &events, client.InNamespace(n.namespace)); err != nil {
		t.Fatal(err)
	}
	if len(events.Items) == 0 || n.log() == "" {
		t.Error("there is nothing that could tell")
	}
	for _, event := range events.Items {
		if strings.Contains(event.Note, text) {
			t.Errorf("event %s", event.Note)
		}
	}
	if log := n.log(); strings.Contains(log, text) {
		t.Errorf("log %s", log)
	}
}
