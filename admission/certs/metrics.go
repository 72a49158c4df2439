package certs

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The kinds of expiry.
const (
	expiryCA     = "ca"
	expiryLeaf   = "leaf"
	expiryBundle = "bundle"
)

var (
	descExpiry = prometheus.NewDesc("stageset_certificate_expiry_seconds",
		"Seconds until expiry: of the current CA (ca), of the certificate that this replica serves (leaf), and of the trust"+
			" that the caBundles put in it (bundle).", []string{"kind"}, nil)
	descTrusted = prometheus.NewDesc("stageset_certificate_trusted",
		"1 if the caBundle of every webhook verifies the certificate that this replica serves, else 0.", nil, nil)
)

// keyringMetrics measures a Keyring when it is asked to, so that seconds are those of the moment.
type keyringMetrics struct {
	keyring  *Keyring
	problems *prometheus.CounterVec
}

func newMetrics(keyring *Keyring) *keyringMetrics {
	m := &keyringMetrics{keyring: keyring, problems: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "stageset_certificate_problems_total",
		Help: "How often something was found that keeps the certificate from being renewed, by kind: once when it is found, and" +
			" then once a minute.",
	}, []string{"kind"})}
	for _, kind := range []string{problemMissing, problemUnusable, problemImmutable} {
		m.problems.WithLabelValues(kind)
	}
	return m
}

// Metrics are the measurements of the certificate.
func (k *Keyring) Metrics() prometheus.Collector { return k.metrics }

// Describe sends what Collect may send.
func (m *keyringMetrics) Describe(out chan<- *prometheus.Desc) {
	out <- descExpiry
	out <- descTrusted
	m.problems.Describe(out)
}

// Collect sends what is known: nothing of a certificate before there is one, and nothing of a bundle that does not verify
// it.
func (m *keyringMetrics) Collect(out chan<- prometheus.Metric) {
	m.problems.Collect(out)
	now := m.keyring.options.Clock.Now()
	expiry := func(kind string, end time.Time) {
		out <- prometheus.MustNewConstMetric(descExpiry, prometheus.GaugeValue, end.Sub(now).Seconds(), kind)
	}
	seen := m.keyring.seen.Load()
	if seen != nil && seen.authority != nil {
		expiry(expiryCA, seen.authority.NotAfter)
	}
	trusted := 0.0
	if served := m.keyring.served.Load(); served != nil {
		expiry(expiryLeaf, served.Leaf.NotAfter)
		if until, err := seen.configurations.trust(served, m.keyring.options.DNSNames, now); err == nil {
			expiry(expiryBundle, until)
			trusted = 1
		}
	}
	out <- prometheus.MustNewConstMetric(descTrusted, prometheus.GaugeValue, trusted)
}
