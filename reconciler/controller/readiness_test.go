package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
)

// A StageSet has one series, whatever it went through, and none once it is gone: nothing is left of reasons that were.
func TestReadinessIsMeasuredOnce(t *testing.T) {
	var r readiness
	app, gone := types.NamespacedName{Namespace: "team", Name: "app"}, types.NamespacedName{Namespace: "team", Name: "gone"}
	r.set(app, state{reason: "Progressing"})
	r.set(app, state{ready: true, reason: "Succeeded", looping: true})
	r.set(gone, state{reason: "SourceNotFound", looping: true})
	r.forget(gone)
	want := `
# HELP stageset_drift_looping 1 while somebody sets again and again what the StageSet applies; not there otherwise.
# TYPE stageset_drift_looping gauge
stageset_drift_looping{name="app",namespace="team"} 1
# HELP stageset_ready 1 if the StageSet is Ready, else 0, with the reason of that condition: 1 with another reason than ` +
		`Succeeded while a newer release is held.
# TYPE stageset_ready gauge
stageset_ready{name="app",namespace="team",reason="Succeeded"} 1
`
	if err := testutil.CollectAndCompare(&r, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	r.set(app, state{reason: "HealthCheckFailed"})
	want = `
# HELP stageset_ready 1 if the StageSet is Ready, else 0, with the reason of that condition: 1 with another reason than ` +
		`Succeeded while a newer release is held.
# TYPE stageset_ready gauge
stageset_ready{name="app",namespace="team",reason="HealthCheckFailed"} 0
`
	if err := testutil.CollectAndCompare(&r, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// waiting is a queue.
type waiting struct{}

func (waiting) Len() int              { return 3 }
func (waiting) Oldest() time.Duration { return time.Minute }

// A reconciler that is not elected has no queue, and measures none.
func TestTheQueueIsMeasuredOnceThereIsOne(t *testing.T) {
	if got := testutil.ToFloat64(depth) + testutil.ToFloat64(oldest); got != 0 {
		t.Errorf("without a queue: %v", got)
	}
	MeasureQueue(waiting{})
	t.Cleanup(func() { measuredQueue.Store(nil) })
	if items, seconds := testutil.ToFloat64(depth), testutil.ToFloat64(oldest); items != 3 || seconds != 60 {
		t.Errorf("%v wait, the longest for %v seconds", items, seconds)
	}
}
