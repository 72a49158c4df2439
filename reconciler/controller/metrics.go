package controller

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of this package. None has a label that a tenant can make up, but for the names of its StageSets, which are there
// as long as these are.
var (
	passes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "stageset_reconcile_total",
		Help: "Passes by how they ended: the reason of the condition Ready, Deleted, or Error when nothing could be written.",
	}, []string{"reason"})

	measured readiness

	steps = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "stageset_step_seconds",
		Help:    "How long the steps of a pass take.",
		Buckets: []float64{.001, .005, .02, .1, .5, 1, 2, 5, 10, 30, 60, 120},
	}, []string{"step"})

	queued = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "stageset_queue_seconds",
		Help:    "How long StageSets have waited for a worker once a pass of them was due.",
		Buckets: []float64{.001, .01, .1, 1, 10, 60, 600},
	})

	depth = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "stageset_queue_depth",
		Help: "StageSets of which a pass is due that no worker has begun.",
	}, func() float64 { return float64(backlog().Len()) })

	oldest = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "stageset_queue_oldest_seconds",
		Help: "How long the one of them has been waiting that waits longest; 0 if there is none.",
	}, func() float64 { return backlog().Oldest().Seconds() })

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

// RegisterMetrics registers the metrics of this package.
func RegisterMetrics(registry prometheus.Registerer) error {
	passes.WithLabelValues(endedError) // an alert sees the first one only where there was none before
	var problems []error
	for _, collector := range []prometheus.Collector{
		passes, &measured, steps, queued, depth, oldest, orphanedObjects, driftCorrected,
	} {
		problems = append(problems, registry.Register(collector))
	}
	return errors.Join(problems...)
}

// Queue is what is measured of the queue of StageSets.
type Queue interface {
	// Len is how many wait, and Oldest how long the one that waits longest has been waiting.
	Len() int
	Oldest() time.Duration
}

// measuredQueue is the queue of the elected reconciler; there is none before.
var measuredQueue atomic.Pointer[Queue]

// MeasureQueue has the metrics be about this queue.
func MeasureQueue(queue Queue) { measuredQueue.Store(&queue) }

func backlog() Queue {
	if queue := measuredQueue.Load(); queue != nil {
		return *queue
	}
	return noQueue{}
}

// noQueue has nothing that waits.
type noQueue struct{}

func (noQueue) Len() int              { return 0 }
func (noQueue) Oldest() time.Duration { return 0 }

// Waited measures how long a StageSet waited for a worker.
func Waited(waited time.Duration) { queued.Observe(waited.Seconds()) }

// Values of the label reason of passes that leave no condition.
const (
	// endedDeleted: the StageSet is gone.
	endedDeleted = "Deleted"
	// endedError: something of our own could not be read or written; the pass is made again.
	endedError = "Error"
)
