package controller

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/stageset/stageset/reconciler/pipeline"
)

// A namespace leaves places to others, those who wait for slow clusters leave places to those who do not, and all that talk
// to other clusters leave workers to those that do not.
func TestPassesAbroad(t *testing.T) {
	const quick, slow = false, true
	type step struct {
		leave     bool
		namespace string
		patient   bool
		entered   bool
	}
	cases := map[string]struct {
		workers int
		steps   []step
	}{
		"a quarter of the workers is left": {8, []step{
			{false, "a", quick, true}, {false, "a", quick, true}, {false, "a", quick, true}, {false, "b", slow, true},
			{false, "a", quick, true}, {false, "a", quick, true}, {false, "c", quick, false}, {false, "c", slow, false},
			{true, "b", slow, false}, {false, "c", quick, true}, {false, "b", quick, false},
		}},
		"a quarter of the workers waits": {16, []step{
			{false, "a", slow, true}, {false, "a", slow, true}, {false, "a", slow, false}, {false, "b", slow, true},
			{false, "b", slow, false}, {false, "c", slow, true}, {false, "d", slow, false}, {false, "a", quick, true},
			{true, "b", slow, false}, {false, "d", slow, true}, {false, "b", slow, false}, {false, "b", quick, true},
		}},
		"one worker": {1, []step{
			{false, "a", quick, true}, {false, "b", quick, false}, {true, "a", quick, false}, {false, "b", slow, true},
			{false, "a", quick, false}, {true, "b", slow, false}, {false, "a", quick, true},
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var passes abroad
			for i, step := range tc.steps {
				pass := &pipeline.Pass{StageSet: types.NamespacedName{Namespace: step.namespace}, Patient: step.patient}
				if step.leave {
					passes.leave(pass)
				} else if got := passes.enter(pass, tc.workers); got != step.entered {
					t.Errorf("step %d, %s: entered is %t, want %t", i, step.namespace, got, step.entered)
				}
			}
		})
	}
}
