package release

import (
	"testing"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/rollout"
)

func TestPhase(t *testing.T) {
	some := map[inventory.Key]bool{{Kind: "ConfigMap", Namespace: "team-a", Name: "a"}: true}
	cases := map[string]struct {
		step      rollout.Step
		at        int // the stage that the decision is about; the phase is that of stage 1
		remaining int
		written   map[inventory.Key]bool
		failed    bool
		want      v1.StagePhase
	}{
		"not reached":                     {step: rollout.Wait, at: 0, want: v1.StagePending},
		"left":                            {step: rollout.Wait, at: 2, want: v1.StageReady},
		"all are done":                    {step: rollout.Done, at: 3, want: v1.StageReady},
		"has more to write":               {step: rollout.Wait, at: 1, remaining: 1, want: v1.StageApplying},
		"is looked at":                    {step: rollout.Wait, at: 1, want: v1.StageVerifying},
		"takes too long":                  {step: rollout.Hold, at: 1, want: v1.StageHeld},
		"takes too long, and is not done": {step: rollout.Hold, at: 1, remaining: 1, want: v1.StageApplying},
		"will not become healthy":         {step: rollout.Fail, at: 1, written: some, want: v1.StageFailed},
		"nothing of it could be written":  {step: rollout.Write, at: 1, remaining: 2, failed: true, want: v1.StageFailed},
		"some of it could be written": {
			step: rollout.Write, at: 1, remaining: 1, written: some, failed: true, want: v1.StageApplying,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			of := &stage{written: tc.written, state: rollout.Stage{Remaining: tc.remaining}}
			if got := phase(1, rollout.Decision{Step: tc.step, Stage: tc.at}, of, tc.failed); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
