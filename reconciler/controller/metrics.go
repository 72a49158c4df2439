package controller

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Metrics of this package. None has a label that a tenant can make up, but for the names of its StageSets, which are there
// as long as these are.
var (
	passes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "stageset_reconcile_total",
		Help: "Passes by how they ended: the reason of the condition Ready, Deleted, or Error when nothing could be written.",
	}, []string{"reason"})

	ready = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "stageset_ready",
		Help: "Whether the StageSet is Ready.",
	}, []string{"namespace", "name"})

	steps = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "stageset_step_seconds",
		Help:    "How long the steps of a pass take.",
		Buckets: []float64{.001, .005, .02, .1, .5, 1, 2, 5, 10, 30, 60, 120},
	}, []string{"step"})

	queued = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "stageset_queue_seconds",
		Help:    "How long StageSets wait for a worker once a pass of them is due.",
		Buckets: []float64{.001, .01, .1, 1, 10, 60, 600},
	})

	// orphanedObjects counts what stays in clusters although it should have been deleted.
	orphanedObjects = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "stageset_orphaned_objects_total",
		Help: "Objects that were left behind although they should have been deleted.",
	})

	// driftCorrected counts what others did to applied objects, and was undone.
	driftCorrected = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "stageset_drift_corrected_total",
		Help: "Objects that were applied again because somebody else had changed or deleted them.",
	})
)

// RegisterMetrics registers the metrics of this package with controller-runtime's registry.
func RegisterMetrics() error {
	var problems []error
	for _, collector := range []prometheus.Collector{passes, ready, steps, queued, orphanedObjects, driftCorrected} {
		problems = append(problems, metrics.Registry.Register(collector))
	}
	return errors.Join(problems...)
}

// Waited measures how long a StageSet waited for a worker.
func Waited(waited time.Duration) { queued.Observe(waited.Seconds()) }

// Values of the label reason of passes that leave no condition.
const (
	// endedDeleted: the StageSet is gone.
	endedDeleted = "Deleted"
	// endedError: something of our own could not be read or written; the pass is made again.
	endedError = "Error"
)

// measureReady says whether a StageSet is Ready.
func measureReady(name types.NamespacedName, is bool) {
	value := 0.0
	if is {
		value = 1
	}
	ready.WithLabelValues(name.Namespace, name.Name).Set(value)
}

// forgetReady ends what is measured of a StageSet.
func forgetReady(name types.NamespacedName) { ready.DeleteLabelValues(name.Namespace, name.Name) }

// Steps measures how long the steps of passes take.
type Steps struct {
	Clock clock.PassiveClock
}

// Begin begins a step; what it returns ends it.
func (s Steps) Begin(step string) (end func()) {
	began := s.Clock.Now()
	return func() { steps.WithLabelValues(step).Observe(s.Clock.Since(began).Seconds()) }
}
