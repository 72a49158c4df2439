package webhook

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// The verdicts that Metrics tells apart.
const (
	verdictAllowed = "allowed"
	verdictDenied  = "denied"
	verdictShed    = "shed"
	verdictError   = "error"
)

// Metrics are the measurements of the validating webhook. Dry runs leave no trace in them.
type Metrics struct {
	seconds *prometheus.HistogramVec
}

// NewMetrics registers the metrics of this package.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "stageset_admission_seconds",
		Help:    "Time to validate a StageSet at admission, by operation and verdict (allowed, denied, shed, error).",
		Buckets: prometheus.ExponentialBucketsRange(50e-6, 250e-3, 12),
	}, []string{"operation", "verdict"})}
	return m, registry.Register(m.seconds)
}

func (m *Metrics) measure(next admission.Handler) admission.Handler {
	if m == nil {
		return next
	}
	return admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
		var response admission.Response
		timer := prometheus.NewTimer(prometheus.ObserverFunc(func(seconds float64) {
			m.seconds.WithLabelValues(string(request.Operation), verdict(response)).Observe(seconds)
		}))
		response = next.Handle(ctx, request)
		if request.DryRun == nil || !*request.DryRun {
			timer.ObserveDuration()
		}
		return response
	})
}

func verdict(response admission.Response) string {
	switch {
	case response.Allowed:
		return verdictAllowed
	case response.Result.Code == http.StatusTooManyRequests:
		return verdictShed
	case response.Result.Details != nil && len(response.Result.Details.Causes) > 0:
		return verdictDenied
	default:
		return verdictError
	}
}
