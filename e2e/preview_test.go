package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

// notBad is about what is rendered.
const notBad = `
target: Manifest
validations:
- name: value
  expression: object.kind != 'ConfigMap' || object.data.value != 'bad'
  message: have a good value`

// What a policy about rendered objects would refuse, only the reconciler can tell: with the action Warn it names exactly those
// StageSets that Deny refuses, in the way that docs/policies.md says.
func TestWarningsShowWhatDenyWouldRefuse(t *testing.T) {
	s := setup(t)
	metrics := fmt.Sprintf("127.0.0.1:%d", process.FreePort(t))
	s.ownReconciler(t, policyConfig(t, defaultPolicyConfig), "--metrics-bind-address="+metrics)
	n := s.tenant(t)
	revisions := map[string]string{}
	for _, value := range []string{"good", "bad"} {
		revisions[value] = n.source(t, value, map[string]string{"settings.yaml": configMap(value, value)})
	}
	name := n.policy(t, "value", "validationActions: [Warn]"+notBad)
	for value, revision := range revisions {
		n.stageSet(t, value, oneStage(value))
		n.waitReady(t, value, value, revision)
	}
	warning := fmt.Sprintf("stage app: ConfigMap %s/bad: %s/value: have a good value", n.namespace, name)
	n.wait(t, "bad", messageHas("policies warn: "+warning))
	n.waitEvent(t, "bad", "Normal", v1.ReasonSucceeded, warning)
	counted := `stageset_policy_decisions_total{action="warn",enforcement_point="reconcile",policy="` + name + `"} `
	cluster.Eventually(t, func(ctx context.Context) error {
		text, err := scrape(ctx, metrics)
		if err == nil && !strings.Contains(text, counted) {
			return fmt.Errorf("the metrics lack %s", counted)
		}
		return err
	})
	output, err := s.kubectl(t, "", "get", "stagesets", "-A", "-o", "wide")
	if err != nil {
		t.Fatal(output)
	}
	for line := range strings.Lines(output) {
		if fields := strings.Fields(line); strings.Contains(line, name+"/") != (fields[0] == n.namespace && fields[1] == "bad") {
			t.Errorf("who looks for the policy finds:\n%s", line)
		}
	}

	n.policy(t, "value", notBad)
	n.wait(t, "bad", cluster.Condition(v1.ConditionReady, "False", v1.ReasonPolicyViolation), messageHas(warning))
	n.request(t, "good", "again")
	n.wait(t, "good", handled("again"), cluster.Condition(v1.ConditionReady, "True", v1.ReasonSucceeded))
}

// scrape are the metrics that are served at an address.
func scrape(ctx context.Context, address string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return string(content), err
}
