package audit

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/stageset/stageset/policies"
)

// Metrics are the measurements of the audit. Only the leader has any.
type Metrics struct {
	violations *prometheus.GaugeVec
}

// NewMetrics registers the metrics of this package.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{violations: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "stageset_audit_violations",
		Help: "Violations of each policy, whatever they lead to, among the StageSets that were stored at the last audit; only" +
			" the elected replica has any.",
	}, []string{"policy"})}
	return m, registry.Register(m.violations)
}

// set replaces what was found before: a policy that is gone has no violations left to show.
func (m *Metrics) set(all []policies.Summary, found *findings) {
	m.violations.Reset()
	for _, policy := range all {
		count := int64(0)
		if of := found.policies[policy.Name]; of != nil {
			count = of.violations
		}
		m.violations.WithLabelValues(policy.Name).Set(float64(count))
	}
}
