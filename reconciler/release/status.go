package release

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/rollout"
)

// Size is the size of the run's rendered objects, in bytes as JSON.
func (r *Run) Size() int64 { return r.cleared.Size() }

// Stages is how many stages the run has.
func (r *Run) Stages() int { return len(r.stages) }

// Status is the status of all stages after a pass; failed is true when the pass ended in an error at its current stage.
func (r *Run) Status(progress Progress, failed bool) []v1.StageStatus {
	statuses := make([]v1.StageStatus, 0, len(r.stages))
	for index, stage := range r.stages {
		status := v1.StageStatus{
			Name:               stage.state.Name,
			Phase:              phase(index, progress.Decision, stage, failed),
			Objects:            int32(len(stage.cleared.Objects())),
			ServiceAccountName: stage.Record.Target.ServiceAccountName,
			StartedAt:          stamp(stage.state.StartedAt),
			ReadyAt:            stamp(stage.readyAt),
		}
		if index == progress.Decision.Stage {
			status.Message = message(stage)
		}
		statuses = append(statuses, status)
	}
	return statuses
}

func phase(index int, decision rollout.Decision, stage *stage, failed bool) v1.StagePhase {
	switch {
	case index < decision.Stage:
		return v1.StageReady
	case index > decision.Stage:
		return v1.StagePending
	case decision.Step == rollout.Fail:
		return v1.StageFailed
	case failed && len(stage.written) == 0:
		return v1.StageFailed
	case stage.state.Remaining > 0:
		return v1.StageApplying
	case decision.Step == rollout.Hold:
		return v1.StageHeld
	default:
		return v1.StageVerifying
	}
}

func message(stage *stage) string {
	if len(stage.state.Health.Failed) > 0 {
		return stage.state.Health.FailedMessage()
	}
	return stage.state.Health.ProgressingMessage()
}

func stamp(at time.Time) *metav1.Time {
	if at.IsZero() {
		return nil
	}
	time := metav1.NewTime(at.Truncate(1e9))
	return &time
}
