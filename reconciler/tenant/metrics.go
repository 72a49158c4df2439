package tenant

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// What comes of requests for tokens.
const (
	requestIssued = "issued"
	requestFailed = "failed"
)

// Metrics are the measurements of tokens. A nil Metrics measures nothing.
type Metrics struct {
	requests *prometheus.CounterVec
}

// NewMetrics registers the metrics of this package.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{requests: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "stageset_token_requests_total",
		Help: "Requests for tokens of tenants' service accounts, by what came of them (issued, failed). A token is kept, and" +
			" requested anew when most of its hour is over.",
	}, []string{"result"})}
	for _, result := range []string{requestIssued, requestFailed} {
		m.requests.WithLabelValues(result)
	}
	return m, registry.Register(m.requests)
}

// counted is mint, counted.
func (m *Metrics) counted(mint mintFunc) mintFunc {
	if m == nil {
		return mint
	}
	return func(ctx context.Context, of grant, now time.Time) (*token, error) {
		minted, err := mint(ctx, of, now)
		result := requestIssued
		if err != nil {
			result = requestFailed
		}
		m.requests.WithLabelValues(result).Inc()
		return minted, err
	}
}
