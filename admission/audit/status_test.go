package audit

import (
	"strings"
	"testing"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

// What the audit cannot say is not shown as nothing to say, but where it is said.
func TestAudited(t *testing.T) {
	rule := func(name string, at ...v1alpha1.EnforcementPoint) v1alpha1.RuleStatus {
		return v1alpha1.RuleStatus{Name: name, EnforcedAt: at}
	}
	stored := rule("stored", v1alpha1.EnforcedAtAdmission, v1alpha1.EnforcedAtReconcile)
	requests, rendered := rule("requests", v1alpha1.EnforcedAtAdmission), rule("rendered", v1alpha1.EnforcedAtReconcile)
	for name, test := range map[string]struct {
		target  v1alpha1.Target
		rules   []v1alpha1.RuleStatus
		want    string // status and reason
		message string // a part
	}{
		"what is stored": {v1alpha1.TargetStageSet, []v1alpha1.RuleStatus{stored}, "True Evaluated", "all validations"},
		"some of it": {
			v1alpha1.TargetStageSet, []v1alpha1.RuleStatus{stored, requests}, "True Evaluated", "says nothing, are: requests",
		},
		"requests": {v1alpha1.TargetStageSet, []v1alpha1.RuleStatus{requests}, "False AtAdmission", "about requests"},
		"defaults": {v1alpha1.TargetStageSet, nil, "False NoValidations", "nothing is refused"},
		"sources":  {v1alpha1.TargetSource, []v1alpha1.RuleStatus{rendered}, "False AtReconcile", "evaluated by the reconciler"},
		"objects": {
			v1alpha1.TargetManifest, []v1alpha1.RuleStatus{rendered}, "False AtReconcile",
			`stageset_policy_decisions_total{policy="p",enforcement_point="reconcile"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := audited("p", policies.Summary{Target: test.target, Rules: test.rules})
			if said := string(got.Status) + " " + got.Reason; said != test.want || !strings.Contains(got.Message, test.message) {
				t.Errorf("it is %s: %s", said, got.Message)
			}
		})
	}
}
