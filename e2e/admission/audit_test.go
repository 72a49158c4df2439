package admission_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

const twoStagesSpec = validSpec + "- {name: two, sourceRef: {kind: GitRepository, name: app}}\n"

// wantsTwoStages is a policy that the action is to be put into.
const wantsTwoStages = `
validationActions: [%s]
validations:
- name: two
  fieldPath: spec.stages
  expression: object.spec.stages.size() >= 2
  message: have two stages`

// audited wants that the audit has found so many violations that lead to the action, and no others.
func audited(action v1alpha1.ValidationAction, violations int64) func(v1alpha1.InstallationStatus) error {
	return func(entry v1alpha1.InstallationStatus) error {
		if entry.Audit == nil {
			return errors.New("nothing is audited")
		}
		want := map[v1alpha1.ValidationAction]int64{}
		if violations > 0 {
			want[action] = violations
		}
		if diff := cmp.Diff(want, entry.Audit.ByAction); diff != "" || entry.Audit.Violations != violations {
			return fmt.Errorf("the audit found %d violations, by action (-want +got):\n%s", entry.Audit.Violations, diff)
		}
		return nil
	}
}

// touch changes the spec of a stored StageSet, as a dry run.
func (i *installation) touch(ctx context.Context, t *testing.T, name string) error {
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec": {"interval": "1h"}}`))
	return i.client.Patch(ctx, i.stageSet(t, name, validSpec), patch, client.DryRunAll)
}

// The status of a policy that only warns, or only records, names exactly those StageSets that it refuses once it denies.
func TestAuditShowsWhatWouldBeDenied(t *testing.T) {
	for _, action := range []v1alpha1.ValidationAction{v1alpha1.ValidationActionWarn, v1alpha1.ValidationActionAudit} {
		t.Run(string(action), func(t *testing.T) {
			i := install(t)
			names := []string{"a-one", "b-two", "c-one", "d-two"}
			for _, name := range names {
				spec := validSpec
				if strings.HasSuffix(name, "two") {
					spec = twoStagesSpec
				}
				i.mustCreate(t, i.stageSet(t, name, spec))
			}
			i.installWebhooks(t)
			leader := i.start(t)
			follower := i.startAt(t, process.FreePort(t), "/readyz")
			policy := i.policy(t, "stages", fmt.Sprintf(wantsTwoStages, action))
			shown := i.status(t, policy, audited(action, 2),
				condition(v1alpha1.ConditionAudited, metav1.ConditionTrue, v1alpha1.ReasonEvaluated))
			for _, name := range names {
				if err := i.touch(t.Context(), t, name); err != nil {
					t.Errorf("%s is refused by a policy that does not deny: %v", name, err)
				}
			}
			series := `stageset_audit_violations{policy="` + policy.GetName() + `"}`
			if got := leader.measure(t)[series]; got != 2 {
				t.Errorf("the metric of the leader says %v", got)
			}
			if _, found := follower.measure(t)[series]; found {
				t.Error("a replica that does not lead audits, too")
			}

			policy = i.policy(t, "stages", fmt.Sprintf(wantsTwoStages, v1alpha1.ValidationActionDeny))
			i.status(t, policy, audited(v1alpha1.ValidationActionDeny, 2)) // from now on it denies
			var expected, refused []string
			for _, example := range shown.Audit.Examples {
				expected = append(expected, example.Name)
				if example.Namespace != i.tenant || example.Message != policy.GetName()+"/two: have two stages" {
					t.Errorf("it showed %+v", example)
				}
			}
			for _, name := range names {
				if err := i.touch(t.Context(), t, name); apierrors.IsInvalid(err) {
					refused = append(refused, name)
				} else if err != nil {
					t.Fatal(err)
				}
			}
			slices.Sort(expected)
			if diff := cmp.Diff(expected, refused); diff != "" || len(refused) != 2 {
				t.Errorf("refused (-shown before +refused):\n%s", diff)
			}
		})
	}
}

// P-55: what is wrong with one policy is said of that policy, and leaves the audit of the others what it is. What the audit
// cannot know is not shown as nothing.
func TestAuditGoesOnAroundWhatIsBroken(t *testing.T) {
	i := install(t)
	i.mustCreate(t, i.stageSet(t, "one", validSpec))
	i.mustCreate(t, i.stageSet(t, "large", manyStages(64)))
	stages := "object.spec.stages"
	policies := map[string]string{
		"broken":  "validations: [{name: r, expression: 'object.spec. == 1', message: m}]",
		"missing": "paramKind: {apiVersion: v1, kind: ConfigMap}\nparamRef: {name: none, namespace: " + i.name + "}\n" + always,
		"costly": "validations: [{name: r, message: m, expression: \"" + stages + ".all(a, " + stages + ".all(b, " + stages +
			".all(c, a.name + b.name + c.name != 'x')))\"}]",
		"manifest": "target: Manifest\n" + always,
		"source":   "target: Source\n" + always,
		"deletes":  "matchConstraints: {operations: [DELETE]}\n" + always,
		"author":   "validations: [{name: r, expression: \"request.userInfo.username != ''\", message: m}]",
		"fills": "mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: " +
			"\"Object{spec: Object.spec{interval: object.spec.retryInterval}}\"}}]",
		"fine": fmt.Sprintf(wantsTwoStages, v1alpha1.ValidationActionWarn),
	}
	for name, spec := range policies {
		i.policy(t, name, spec) // which no webhook refuses yet
	}
	i.installWebhooks(t)
	i.start(t)
	const ready, auditing = v1alpha1.ConditionReady, v1alpha1.ConditionAudited
	for name, test := range map[string]struct {
		ready, audited string // reasons; True for Ready and Evaluated, else False
		violations     int64
	}{
		"broken":   {v1alpha1.ReasonInvalid, v1alpha1.ReasonEvaluated, 2},
		"missing":  {v1alpha1.ReasonParamsNotFound, v1alpha1.ReasonEvaluated, 2},
		"costly":   {v1alpha1.ReasonEvaluationFailed, v1alpha1.ReasonEvaluated, 1},
		"manifest": {v1alpha1.ReasonReady, v1alpha1.ReasonAtReconcile, -1},
		"source":   {v1alpha1.ReasonReady, v1alpha1.ReasonAtReconcile, -1},
		"deletes":  {v1alpha1.ReasonReady, v1alpha1.ReasonAtAdmission, -1},
		"author":   {v1alpha1.ReasonReady, v1alpha1.ReasonAtAdmission, -1},
		"fills":    {v1alpha1.ReasonEvaluationFailed, v1alpha1.ReasonNoValidations, -1},
		"fine":     {v1alpha1.ReasonReady, v1alpha1.ReasonEvaluated, 1},
	} {
		t.Run(name, func(t *testing.T) {
			ref := cluster.Ref("stages.metio.wtf/v1alpha1", "StageSetPolicy", "", i.tenant+"-"+name)
			entry := i.status(t, ref, condition(ready, truth(test.ready == v1alpha1.ReasonReady), test.ready),
				condition(auditing, truth(test.audited == v1alpha1.ReasonEvaluated), test.audited))
			violations := int64(-1)
			if entry.Audit != nil {
				violations = entry.Audit.Violations
			}
			if violations != test.violations {
				t.Errorf("%d violations, want %d", violations, test.violations)
			}
		})
	}
}

const always = "validations: [{name: r, expression: 'true', message: m}]"

func truth(of bool) metav1.ConditionStatus {
	if of {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// manyStages is the spec of a StageSet of n stages.
func manyStages(n int) string {
	spec := "serviceAccountName: deployer\nstages:\n"
	for stage := range n {
		spec += fmt.Sprintf("- {name: stage-%d, sourceRef: {kind: GitRepository, name: app}}\n", stage)
	}
	return spec
}
