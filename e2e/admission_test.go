package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

var webhookService = regexp.MustCompile(`(?m)service: \{.* path: (\S+)\}$`)

// startAdmission installs the webhooks, for the StageSets of these tenants alone, and runs stageset-admission as its own
// account, both until the end of the test. There is one installation: the test must not be parallel.
func (s *suite) startAdmission(t testing.TB, tenants ...*tenant) *process.Process {
	t.Helper()
	return s.startAdmissionOf(t, installation{namespace: system}, tenants, policyConfig(t, defaultPolicyConfig))
}

// startAdmissionOf is startAdmission for an installation, with more arguments.
func (s *suite) startAdmissionOf(t testing.TB, i installation, tenants []*tenant, args ...string) *process.Process {
	t.Helper()
	namespaces := make([]string, 0, len(tenants))
	for _, n := range tenants {
		namespaces = append(namespaces, n.namespace)
	}
	port, health := process.FreePort(t), fmt.Sprintf("127.0.0.1:%d", process.FreePort(t))
	url := fmt.Sprintf("url: https://localhost:%d$1", port)
	webhooks := webhookService.ReplaceAllString(chartFile(t, "admission-webhooks.yaml"), url)
	const anchor = "\n  sideEffects: None\n"
	s.Apply(t, strings.ReplaceAll(webhooks, anchor, anchor+fmt.Sprintf(
		"  namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [%s]}]}\n",
		strings.Join(namespaces, ", "))))
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		s.deleteAfter(t, cluster.Ref("admissionregistration.k8s.io/v1", kind, "", "stageset-admission"))
	}
	s.Apply(t, "{apiVersion: v1, kind: Secret, metadata: {name: stageset-admission-tls, namespace: "+i.namespace+"}}")
	return process.Start(t, process.Options{
		Path: binary(t, "stageset-admission"),
		Args: append([]string{
			"--kubeconfig", s.WriteKubeconfig(t, s.TokenConfig(t, i.namespace, programAdmission)),
			"--name=stageset", "--namespace=" + i.namespace,
			"--webhook-host=127.0.0.1", fmt.Sprintf("--webhook-port=%d", port), "--cert-dns-names=localhost",
			"--health-probe-bind-address=" + health, "--metrics-bind-address=0", "--drain-delay=0s", "--log-format=text",
		}, args...),
		ReadyURL: "http://" + health + "/readyz",
	})
}

// refusals are StageSets that built-in rules refuse, with the rules that they break.
var refusals = map[string]struct {
	spec  string
	rules []string
}{
	"both-references": {
		spec: `
serviceAccountName: deployer
kubeConfig: {secretRef: {name: remote}, configMapRef: {name: remote}}
stages: [{name: app, sourceRef: {kind: GitRepository, name: app}}]`,
		rules: []string{"kubeconfig-one-reference/one-reference"},
	},
	"empty-kubeconfig": {
		spec: `
serviceAccountName: deployer
kubeConfig: {}
stages: [{name: app, sourceRef: {kind: GitRepository, name: app}}]`,
		rules: []string{"kubeconfig-one-reference/one-reference"},
	},
	"no-account": {
		spec:  `stages: [{name: app, sourceRef: {kind: GitRepository, name: app}}]`,
		rules: []string{"service-account-required/stages"},
	},
	"foreign-source": {
		spec: `
serviceAccountName: deployer
stages: [{name: app, sourceRef: {kind: GitRepository, name: app, namespace: elsewhere}}]`,
		rules: []string{"no-cross-namespace-refs/sources"},
	},
	"foreign-dependency": {
		spec: `
serviceAccountName: deployer
dependsOn: [{name: other, namespace: elsewhere}]
stages: [{name: app, sourceRef: {kind: GitRepository, name: app}}]`,
		rules: []string{"no-cross-namespace-refs/depends-on"},
	},
	"everything": {
		spec: `
kubeConfig: {secretRef: {name: remote}, configMapRef: {name: remote}}
dependsOn: [{name: other, namespace: elsewhere}, {name: everything}]
stages: [{name: app, sourceRef: {kind: GitRepository, name: app, namespace: elsewhere}}]`,
		rules: []string{
			"kubeconfig-one-reference/one-reference",
			"no-cross-namespace-refs/depends-on",
			"no-cross-namespace-refs/sources",
			"no-self-dependency/self",
			"service-account-required/depends-on",
			"service-account-required/kubeconfig",
			"service-account-required/stages",
		},
	},
}

// What is stored while the webhook is not installed is refused by the reconciler; what is applied while it is, is denied
// by kubectl, with all violations at once. Both say the same, word for word.
func TestAdmissionAndReconcilerRefuseWithTheSameWords(t *testing.T) {
	s := setup(t)
	s.ownReconciler(t, policyConfig(t, defaultPolicyConfig))
	n := s.tenant(t)
	revision := n.source(t, "app", map[string]string{"settings.yaml": configMap("settings", "1")})
	mark := s.Audit(t)
	stored := map[string]string{}
	for name, refusal := range refusals {
		n.stageSet(t, name, refusal.spec)
		n.refusedWhole(t, name, v1.ReasonPolicyViolation, refusal.rules...)
		stored[name] = n.waitRefused(t, name, v1.ReasonPolicyViolation)
		set := &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: name}}
		if err := n.Client.Delete(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		n.WaitGone(t, cluster.Ref(v1.GroupVersion.String(), "StageSet", n.namespace, name))
	}
	n.wroteNothing(t, mark)

	s.startAdmission(t, n)
	for name, refusal := range refusals {
		t.Run(name, func(t *testing.T) {
			output, err := s.kubectl(t, n.stageSetYAML(t, name, refusal.spec), "apply", "-f", "-")
			if err == nil {
				t.Fatalf("kubectl applied it: %s", output)
			}
			violations := denied(t, name, output)
			rules := make([]string, 0, len(violations))
			for _, violation := range violations {
				rule, _, _ := strings.Cut(violation, ": ")
				rules = append(rules, rule)
			}
			if diff := cmp.Diff(refusal.rules, rules); diff != "" {
				t.Errorf("rules of the violations (-want +got):\n%s", diff)
			}
			if got := strings.Join(violations, "; "); got != stored[name] {
				t.Errorf("kubectl says\n%s\nthe reconciler says\n%s", got, stored[name])
			}
		})
	}
	var sets v1.StageSetList
	if err := n.Client.List(t.Context(), &sets, client.InNamespace(n.namespace)); err != nil || len(sets.Items) > 0 {
		t.Errorf("StageSets that were stored: %v (%v)", sets.Items, err)
	}

	if output, err := s.kubectl(t, n.stageSetYAML(t, "good", oneStage("app")), "apply", "-f", "-"); err != nil {
		t.Fatalf("what no rule refuses: %s", output)
	}
	n.waitReady(t, "good", "app", revision)
}

// denied are the violations that kubectl prints, without the fields that it puts in front.
func denied(t *testing.T, name, output string) []string {
	t.Helper()
	head, list, found := strings.Cut(strings.TrimSpace(output), fmt.Sprintf("The StageSet %q is invalid: ", name))
	if !found || head != "" {
		t.Fatalf("kubectl says: %s", output)
	}
	var violations []string
	for line := range strings.Lines(list) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "* ")
		if line == "" {
			continue
		}
		_, violation, _ := strings.Cut(line, ": ")
		violations = append(violations, violation)
	}
	return violations
}
