package app

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/stageset/stageset/admission/audit"
	"github.com/stageset/stageset/admission/certs"
	"github.com/stageset/stageset/admission/webhook"
	"github.com/stageset/stageset/policies/store"
)

// Metrics are the measurements that the program makes itself.
type Metrics struct {
	webhook  *webhook.Metrics
	policies *store.Metrics
	audit    *audit.Metrics
}

// NewMetrics registers all of them, with those of the keyring; docs/metrics.md is made of what it registers.
func NewMetrics(registry prometheus.Registerer, keyring *certs.Keyring) (*Metrics, error) {
	requests, requestsErr := webhook.NewMetrics(registry)
	policies, policiesErr := store.NewMetrics(registry, clock.RealClock{}, store.PointAudit)
	violations, violationsErr := audit.NewMetrics(registry)
	return &Metrics{webhook: requests, policies: policies, audit: violations},
		errors.Join(requestsErr, policiesErr, violationsErr, registry.Register(keyring.Metrics()))
}
