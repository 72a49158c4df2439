package app

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/stageset/stageset/policies/store"
	"github.com/stageset/stageset/reconciler/controller"
	"github.com/stageset/stageset/reconciler/source"
	"github.com/stageset/stageset/reconciler/tenant"
)

// Metrics are the measurements that the program makes itself.
type Metrics struct {
	policies  *store.Metrics
	artifacts *source.Metrics
	tokens    *tenant.Metrics
}

// NewMetrics registers all of them; docs/metrics.md is made of what it registers.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	policies, policiesErr := store.NewMetrics(registry, clock.RealClock{}, store.PointReconcile)
	artifacts, artifactsErr := source.NewMetrics(registry)
	tokens, tokensErr := tenant.NewMetrics(registry)
	return &Metrics{policies: policies, artifacts: artifacts, tokens: tokens},
		errors.Join(policiesErr, artifactsErr, tokensErr, controller.RegisterMetrics(registry))
}
