package controller

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// orphanedObjects counts what stays in clusters although it should have been deleted.
var orphanedObjects = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "stageset_orphaned_objects_total",
	Help: "Objects that were left behind because nobody was left who could delete them.",
})

// driftCorrected counts what others did to applied objects, and was undone.
var driftCorrected = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "stageset_drift_corrected_total",
	Help: "Objects that were applied again because somebody else had changed or deleted them.",
})

// RegisterMetrics registers the metrics of this package with controller-runtime's registry.
func RegisterMetrics() error {
	return errors.Join(metrics.Registry.Register(orphanedObjects), metrics.Registry.Register(driftCorrected))
}
