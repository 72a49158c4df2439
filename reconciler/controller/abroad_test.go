package controller

import "testing"

// A namespace leaves places to others, and all that talk to other clusters leave workers to those that do not.
func TestPassesAbroad(t *testing.T) {
	type step struct {
		leave     bool
		namespace string
		entered   bool
	}
	cases := map[string]struct {
		most  int
		steps []step
	}{
		"half of the places at most": {4, []step{
			{false, "a", true}, {false, "a", true}, {false, "a", false}, {false, "b", true}, {false, "c", true}, {false, "d", false},
		}},
		"a place that is left": {4, []step{
			{false, "a", true}, {false, "a", true}, {true, "a", false}, {false, "a", true}, {false, "a", false},
		}},
		"one worker": {0, []step{{false, "a", true}, {false, "b", false}, {true, "a", false}, {false, "b", true}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var passes abroad
			for i, step := range tc.steps {
				if step.leave {
					passes.leave(step.namespace)
				} else if got := passes.enter(step.namespace, tc.most); got != step.entered {
					t.Errorf("step %d, %s: entered is %t, want %t", i, step.namespace, got, step.entered)
				}
			}
		})
	}
}
