package process

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"k8s.io/client-go/rest"
	clientmetrics "k8s.io/client-go/tools/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// HostRemote stands for every API server but the program's own in the label host: which others there are is up to tenants,
// who could make up any number of them.
const HostRemote = "remote"

// MeasureRequests has the requests to API servers measured, also how long they take. It is called once, before the first of
// them.
func MeasureRequests(own *rest.Config) error {
	server, _, err := rest.DefaultServerUrlFor(own)
	if err != nil {
		return fmt.Errorf("the address of the API server: %w", err)
	}
	metrics.RegisterRESTClientMetrics(metrics.MetricRequestLatency)
	clientmetrics.RequestResult = boundedResults{own: server.Host, next: clientmetrics.RequestResult}
	clientmetrics.RequestLatency = boundedLatencies{own: server.Host, next: clientmetrics.RequestLatency}
	return nil
}

// bounded is host, if it is the program's own.
func bounded(host, own string) string {
	if host == own {
		return host
	}
	return HostRemote
}

type boundedResults struct {
	own  string
	next clientmetrics.ResultMetric
}

// Increment implements metrics.ResultMetric.
func (b boundedResults) Increment(ctx context.Context, code, method, host string) {
	b.next.Increment(ctx, code, method, bounded(host, b.own))
}

type boundedLatencies struct {
	own  string
	next clientmetrics.LatencyMetric
}

// Observe implements metrics.LatencyMetric.
func (b boundedLatencies) Observe(ctx context.Context, verb string, of url.URL, took time.Duration) {
	b.next.Observe(ctx, verb, url.URL{Host: bounded(of.Host, b.own)}, took)
}
