package source

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// How artifacts were got.
const (
	// gotCached: it was in the cache.
	gotCached = "cached"
	// gotDownloaded and gotFailed: it was downloaded and unpacked, or should have been.
	gotDownloaded = "downloaded"
	gotFailed     = "failed"
)

// Metrics are the measurements of artifacts. A nil Metrics measures nothing.
type Metrics struct {
	got     *prometheus.CounterVec
	seconds prometheus.Histogram
	bytes   prometheus.Gauge
}

// NewMetrics registers the metrics of this package.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		got: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stageset_artifacts_total",
			Help: "Artifacts that passes found in the cache (cached), and downloads by how they ended (downloaded, failed).",
		}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "stageset_artifact_download_seconds",
			Help:    "How long downloads take, with verifying and unpacking, however they end.",
			Buckets: []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120},
		}),
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "stageset_artifact_cache_bytes",
			Help: "Bytes of unpacked artifacts that are kept on disk; --artifact-cache-size bounds those that nobody uses.",
		}),
	}
	for _, result := range []string{gotCached, gotDownloaded, gotFailed} {
		m.got.WithLabelValues(result)
	}
	return m, errors.Join(registry.Register(m.got), registry.Register(m.seconds), registry.Register(m.bytes))
}

// count counts an artifact that was got.
func (m *Metrics) count(result string) {
	if m != nil {
		m.got.WithLabelValues(result).Inc()
	}
}

// begin begins a download; what it returns ends it.
func (m *Metrics) begin() (end func(err error)) {
	if m == nil {
		return func(error) {}
	}
	began := clock.RealClock{}.Now()
	return func(err error) {
		m.seconds.Observe(clock.RealClock{}.Since(began).Seconds())
		if err != nil {
			m.count(gotFailed)
			return
		}
		m.count(gotDownloaded)
	}
}

// keep says how large the cache is.
func (m *Metrics) keep(bytes int64) {
	if m != nil {
		m.bytes.Set(float64(bytes))
	}
}
