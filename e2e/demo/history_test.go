package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stageset/stageset/api/v1"
)

func TestHistoryTellsEachChangeOnce(t *testing.T) {
	stage := func(name string, phase v1.StagePhase, message string) v1.StageStatus {
		return v1.StageStatus{Name: name, Phase: phase, Message: message, Objects: 1, ServiceAccountName: "deployer"}
	}
	set := func(status metav1.ConditionStatus, reason string, stages ...v1.StageStatus) *v1.StageSet {
		set := &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "app"}}
		set.Status.Stages = stages
		set.Status.Conditions = []metav1.Condition{{Type: v1.ConditionReady, Status: status, Reason: reason, Message: "said"}}
		return set
	}
	waits := set(metav1.ConditionUnknown, v1.ReasonProgressing,
		stage("one", v1.StageVerifying, "waits"), stage("two", v1.StagePending, ""))
	done := set(metav1.ConditionTrue, v1.ReasonSucceeded, stage("one", v1.StageReady, ""), stage("two", v1.StageReady, ""))
	one, two := change{"app/one", "Ready", "1 object, as deployer"}, change{"app/two", "Ready", "1 object, as deployer"}
	ready := change{"app", "Ready", "said"}
	h := history{}
	for _, step := range []struct {
		what string
		set  *v1.StageSet
		want []change
	}{
		{"nothing is known yet", &v1.StageSet{}, nil},
		{"the first stage waits", waits, []change{{"app/one", "Verifying", "waits"}}},
		{"nothing is new", waits, nil},
		{"all is ready", done, []change{one, two, ready}},
		{"the next run", waits, []change{{"app/one", "Verifying", "waits"}}},
		{"it is ready again", done, []change{one, ready}},
		{"it fails", set(metav1.ConditionFalse, v1.ReasonBuildFailed), []change{{"app", "not Ready", "BuildFailed: said"}}},
	} {
		if diff := cmp.Diff(step.want, h.add(step.set), cmp.AllowUnexported(change{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.what, diff)
		}
	}
	h.gone(done)
	if len(h.add(done)) != 3 {
		t.Error("one that was made again is not told of")
	}
}
