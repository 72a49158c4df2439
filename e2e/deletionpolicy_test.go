package e2e

import (
	"fmt"
	"strings"
	"testing"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// fills is a policy that sets a field of the spec, whatever its author has set.
func fills(field, value string) string {
	return fmt.Sprintf(`
mutations:
- patchType: ApplyConfiguration
  override: true
  applyConfiguration: {expression: "Object{spec: Object.spec{%s: %s}}"}
`, field, value)
}

// How a StageSet is deleted, and whether it is suspended, is what the policies make of it, as everything else. One that cannot
// be evaluated, or that refuses the StageSet, keeps nobody from deleting it.
func TestPoliciesFillInHowAStageSetIsDeleted(t *testing.T) {
	s := setup(t)
	s.ownReconciler(t)
	n := s.tenant(t)
	revision := n.source(t, "app", map[string]string{
		"one/a.yaml": configMap("first", "1"), "two/b.yaml": configMap("second", "1"), "three/c.yaml": configMap("third", "1"),
	})
	for _, name := range []string{"one", "two", "three"} {
		n.stageSet(t, name, dependent(name))
		n.waitReady(t, name, "app", revision)
	}

	n.policy(t, "fill", fills("suspend", "true"))
	n.wait(t, "one", cluster.Condition(v1.ConditionReady, "True", v1.ReasonSuspended))
	n.policy(t, "fill", fills("deletionPolicy", "'Orphan'"))
	n.wait(t, "one", cluster.Condition(v1.ConditionReady, "True", v1.ReasonSucceeded))
	n.delete(t, "one")
	n.gone(t, "one")
	n.WaitFor(t, n.configMap("first"))

	n.policy(t, "fill", fills("deletionPolicy", "object.metadata.labels['no-such-label']"))
	n.wait(t, "two", cluster.Condition(v1.ConditionReady, "False", v1.ReasonPolicyViolation))
	n.delete(t, "two")
	n.gone(t, "two")
	n.absent(t, n.configMap("second"))
	n.waitEvent(t, "two", "Warning", v1.ReasonPolicyViolation, "the deletion goes by spec as it is stored")

	n.policy(t, "fill", "validations: [{name: at-all, expression: 'false', message: nothing is released here}]")
	n.wait(t, "three", cluster.Condition(v1.ConditionReady, "False", v1.ReasonPolicyViolation), messageHas("nothing is released here"))
	n.delete(t, "three")
	n.gone(t, "three")
	n.absent(t, n.configMap("third"))
}

// I8: who refuses a deletion may quote the object, with what was substituted in it; and when nobody can tell any more what that
// was, nothing is quoted.
func TestValuesOfSecretsAreNotToldOfADeletion(t *testing.T) {
	const canary = "canary-4Kd9"
	n := shared(t).tenant(t)
	n.variables(t, "004", canary)
	revision := n.source(t, "app", map[string]string{
		"one/a.yaml": configMap("quoted", "it is ${TOKEN}"), "two/b.yaml": configMap("other", "1"),
	})
	n.stageSet(t, "app", "retryInterval: 1s"+withVariables)
	n.waitReady(t, "app", "app", revision)
	lift := n.restrict(t, restriction{
		operation: "DELETE", only: "oldObject.metadata.name == 'quoted'", allow: "false",
		says: "'" + refusal + ": ' + oldObject.data.value", probe: probeDelete(n.configMap("quoted")),
	})
	n.delete(t, "app")
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonTerminating), messageHas(refusal+": it is […]"))
	n.waitEvent(t, "app", "Warning", v1.ReasonTerminating, refusal)
	if err := n.Client.Delete(t.Context(), cluster.Ref("v1", "Secret", n.namespace, "token")); err != nil {
		t.Fatal(err)
	}
	set := n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonTerminating),
		messageHas("cannot delete ConfigMap "+n.namespace+"/quoted: why is withheld"))
	if strings.Contains(fmt.Sprintf("%+v", set.Status), canary) {
		t.Errorf("status %+v", set.Status)
	}
	lift()
	n.gone(t, "app")
	n.nowhereTold(t, canary)
}
