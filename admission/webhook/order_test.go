package webhook

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Whoever changes the order of stages is told so, whatever else the update does.
func TestNewOrderOfStagesIsWarnedOf(t *testing.T) {
	const stages = "spec: {interval: 1h, stages: [{name: a}, {name: b}, {name: c}]}"
	for name, test := range map[string]struct {
		updated string
		want    []string
	}{
		"as it was":      {"spec: {interval: 2h, stages: [{name: a}, {name: b}, {name: c}]}", nil},
		"one is new":     {"spec: {interval: 1h, stages: [{name: a}, {name: new}, {name: b}, {name: c}]}", nil},
		"one is gone":    {"spec: {interval: 1h, stages: [{name: a}, {name: c}]}", nil},
		"one is renamed": {"spec: {interval: 1h, stages: [{name: a}, {name: other}, {name: c}]}", nil},
		"two change places, one is new, one is gone": {"spec: {interval: 1h, stages: [{name: c}, {name: new}, {name: a}]}",
			[]string{"spec.stages: the order of the stages is another one now: c, new, a"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := newStageSets(t).Validate(t.Context(), newRequest(t, "open", stageSet(t, stages), stageSet(t, test.updated)))
			if diff := cmp.Diff(test.want, got.Warnings); diff != "" || !got.Allowed {
				t.Errorf("allowed is %t, warnings (-want +got):\n%s", got.Allowed, diff)
			}
		})
	}
}
