package webhook

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// The verdicts that Metrics tells apart.
const (
	verdictAllowed = "allowed"
	verdictDenied  = "denied"
	verdictShed    = "shed"
	verdictError   = "error"
)

// measuredOperations are what each webhook may be asked about, by its path. Only the one that validates StageSets may be asked
// about deletions.
var measuredOperations = map[string][]admissionv1.Operation{
	PathDefault:          {admissionv1.Create, admissionv1.Update},
	PathValidate:         {admissionv1.Create, admissionv1.Update, admissionv1.Delete},
	PathValidatePolicies: {admissionv1.Create, admissionv1.Update},
}

// Metrics are the measurements of the webhooks. Dry runs leave no trace in them.
type Metrics struct {
	seconds *prometheus.HistogramVec
}

// NewMetrics registers the metrics of this package.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "stageset_admission_seconds",
		Help:    "Time to answer at admission, by operation and verdict (allowed, denied, shed, error); dry runs do not count.",
		Buckets: []float64{50e-6, 100e-6, 250e-6, 500e-6, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"webhook", "operation", "verdict"})}
	// What is never there before it counts something cannot be seen to rise.
	for path, operations := range measuredOperations {
		for _, operation := range operations {
			for _, verdict := range []string{verdictAllowed, verdictDenied, verdictShed, verdictError} {
				m.seconds.WithLabelValues(path, string(operation), verdict)
			}
		}
	}
	return m, registry.Register(m.seconds)
}

// measure measures what the webhook at a path answers.
func (m *Metrics) measure(path string, next admission.Handler) admission.Handler {
	if m == nil {
		return next
	}
	return admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
		outcome := verdictError // of a request whose handler panics
		timer := prometheus.NewTimer(prometheus.ObserverFunc(func(seconds float64) {
			m.seconds.WithLabelValues(path, string(request.Operation), outcome).Observe(seconds)
		}))
		if request.DryRun == nil || !*request.DryRun {
			defer timer.ObserveDuration()
		}
		response := next.Handle(ctx, request)
		outcome = verdict(response)
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
