package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stageset/stageset/api/v1"
)

// A restart goes on with the timeout that an earlier process began; what is released anew gets its own.
func TestStartedAt(t *testing.T) {
	began := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		phase      v1.StagePhase
		digest     string
		generation int64
		want       time.Time
	}{
		"the same run":           {phase: v1.StageHeld, digest: "d", generation: 1, want: began},
		"another artifact":       {phase: v1.StageHeld, digest: "e", generation: 1},
		"another spec":           {phase: v1.StageHeld, digest: "d", generation: 2},
		"a stage that was ready": {phase: v1.StageReady, digest: "d", generation: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set := &v1.StageSet{ObjectMeta: metav1.ObjectMeta{Generation: tc.generation}}
			set.Status.ObservedGeneration = 1
			at := metav1.NewTime(began)
			set.Status.Stages = []v1.StageStatus{{Name: "app", Phase: tc.phase, Digest: "d", StartedAt: &at}}
			if got := startedAt(set, "app", tc.digest); !got.Equal(tc.want) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
