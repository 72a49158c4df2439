package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/utils/clock"
)

const (
	// flushTimeout bounds what the end of a program waits for a collector to take the last spans.
	flushTimeout = 3 * time.Second
	// complaintPause is how often it is said that spans are not sent: each batch fails while a collector is away.
	complaintPause = time.Minute
)

// Environment variables of OpenTelemetry that are checked before its own code reads them and all the others.
const (
	endpointVariable = "OTEL_EXPORTER_OTLP_ENDPOINT"
	insecureVariable = "OTEL_EXPORTER_OTLP_INSECURE"
	protocolVariable = "OTEL_EXPORTER_OTLP_PROTOCOL"
	// Those for traces alone decide instead.
	tracesEndpointVariable = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	tracesInsecureVariable = "OTEL_EXPORTER_OTLP_TRACES_INSECURE"
	tracesProtocolVariable = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
)

// Tracing is whether a program sends traces to an OpenTelemetry collector. Which one, and all else, is in the environment
// variables that OpenTelemetry specifies: https://opentelemetry.io/docs/specs/otel/protocol/exporter.
type Tracing struct {
	// Enabled is false by default: nothing is connected to then, and nothing is kept, whatever the environment has.
	Enabled bool
}

// AddFlags adds --tracing.
func (t *Tracing) AddFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&t.Enabled, "tracing", false,
		"send traces to the OpenTelemetry collector that the environment variable "+endpointVariable+" names (OTLP over gRPC)")
}

// Validate refuses tracing to nowhere, without the TLS that the URL asks for, and by a protocol that is not spoken.
func (t *Tracing) Validate() error {
	if !t.Enabled {
		return nil
	}
	var problems []error
	endpoint, err := url.Parse(cmp.Or(os.Getenv(tracesEndpointVariable), os.Getenv(endpointVariable)))
	if err != nil || endpoint.Scheme != "https" && endpoint.Scheme != "http" || endpoint.Host == "" {
		problems = append(problems, fmt.Errorf("--tracing: %s must be the URL of a collector, such as https://collector:4317",
			endpointVariable))
	}
	insecure := cmp.Or(os.Getenv(tracesInsecureVariable), os.Getenv(insecureVariable))
	if err == nil && endpoint.Scheme == "https" && strings.EqualFold(insecure, "true") {
		problems = append(problems, fmt.Errorf("--tracing: %s contradicts the https of %s: plain text is http",
			insecureVariable, endpointVariable))
	}
	if protocol := cmp.Or(os.Getenv(tracesProtocolVariable), os.Getenv(protocolVariable), "grpc"); protocol != "grpc" {
		problems = append(problems, fmt.Errorf("--tracing: %s is %q: only grpc is spoken", protocolVariable, protocol))
	}
	return errors.Join(problems...)
}

// Start returns what the program makes its spans with, which never waits for the collector: what does not fit into the queue
// is dropped. end sends what was not sent yet, for at most 3 seconds. t must be valid. What else is wrong in the environment
// is an error, without any value: headers are secret.
func (t *Tracing) Start(ctx context.Context, program string, logger logr.Logger) (trace.TracerProvider, func(), error) {
	if !t.Enabled {
		return noop.NewTracerProvider(), func() {}, nil
	}
	var wrong complaints
	otel.SetLogger(logr.New(&wrong))
	otel.SetErrorHandler(&wrong)
	described, err := resource.New(ctx, resource.WithHost(), resource.WithAttributes(
		attribute.String("service.name", program), attribute.String("service.version", version),
	), resource.WithFromEnv())
	if err != nil {
		return nil, nil, fmt.Errorf("--tracing: OTEL_RESOURCE_ATTRIBUTES or OTEL_SERVICE_NAME: %w", err)
	}
	exporter, err := otlptracegrpc.New(ctx) // connects with the first spans
	if err != nil {
		return nil, nil, fmt.Errorf("--tracing: making the exporter: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(described), sdktrace.WithBatcher(exporter))
	end := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		otel.Handle(provider.Shutdown(ctx))
	}
	if len(wrong.found) > 0 {
		end()
		return nil, nil, fmt.Errorf("--tracing: the environment variables of OpenTelemetry: %w", errors.Join(wrong.found...))
	}
	otel.SetLogger(logr.Discard())
	otel.SetErrorHandler(&unsent{logger: logger, clock: clock.RealClock{}})
	return provider, end, nil
}

// complaints are what OpenTelemetry finds wrong in the environment: it would only log it, some of it with secret values, and
// go on with something else.
type complaints struct{ found []error }

// Handle notes an error of the sampler.
func (c *complaints) Handle(err error) { c.found = append(c.found, err) }

// Init is of logr.LogSink, as are the others.
func (c *complaints) Init(logr.RuntimeInfo) {}

// Enabled is false: only errors are complaints.
func (c *complaints) Enabled(int) bool { return false }

// Info notes nothing.
func (c *complaints) Info(int, string, ...any) {}

// Error notes what could not be read, such as "parse headers". The error and the values may quote what was to be read.
func (c *complaints) Error(_ error, message string, _ ...any) {
	c.found = append(c.found, errors.New("cannot "+message))
}

// WithValues is the same.
func (c *complaints) WithValues(...any) logr.LogSink { return c }

// WithName is the same.
func (c *complaints) WithName(string) logr.LogSink { return c }

// unsent says that spans could not be sent, once a minute.
type unsent struct {
	logger logr.Logger
	clock  clock.PassiveClock

	mu   sync.Mutex
	said time.Time
}

// Handle is told each time.
func (u *unsent) Handle(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.clock.Now()
	if err == nil || now.Sub(u.said) < complaintPause {
		return
	}
	u.said = now
	u.logger.Info("traces are not sent", "err", err.Error())
}
