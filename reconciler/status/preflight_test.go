package status

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

// The condition says what was found out last: a pass that does not come as far changes nothing about it.
func TestPreflight(t *testing.T) {
	const enough = "the accounts have the permissions that the release needs"
	lacking := failure.NewStalled(v1.ReasonPermissionsMissing, "stage app: create pods")
	cases := map[string]struct {
		outcomes []Outcome
		want     string
	}{
		"not asked yet":      {outcomes: []Outcome{{Kind: Failed, Failure: failure.NewStalled(v1.ReasonBuildFailed, "bad")}}},
		"missing":            {outcomes: []Outcome{{Kind: Failed, Failure: lacking, Checked: true}}, want: "False PermissionsMissing: stage app: create pods"},
		"missing a token":    {outcomes: []Outcome{{Kind: Failed, Failure: lacking}}},
		"there, and waiting": {outcomes: []Outcome{{Kind: Progressing, Checked: true}}, want: "True Succeeded: " + enough},
		"there, but unhealthy": {
			outcomes: []Outcome{{Kind: Failed, Failure: failure.NewStalled(v1.ReasonHealthCheckFailed, "bad"), Checked: true}},
			want:     "True Succeeded: " + enough,
		},
		"granted": {
			outcomes: []Outcome{{Kind: Failed, Failure: lacking, Checked: true}, {Checked: true}}, want: "True Succeeded: " + enough,
		},
		"nothing new": {
			outcomes: []Outcome{{Checked: true}, {Kind: Failed, Failure: failure.NewStalled(v1.ReasonBuildFailed, "bad")}},
			want:     "True Succeeded: " + enough,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set := &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
			for _, outcome := range tc.outcomes {
				set.Status = Next(set, outcome, time.Unix(0, 0))
			}
			got := ""
			if condition := meta.FindStatusCondition(set.Status.Conditions, v1.ConditionPreflight); condition != nil {
				got = string(condition.Status) + " " + condition.Reason + ": " + condition.Message
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("condition (-want +got):\n%s", diff)
			}
		})
	}
}
