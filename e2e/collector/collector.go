// Package collector is an OpenTelemetry collector for tests: it keeps the spans that programs send to it, on loopback, and
// never sends anything on.
package collector

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	traces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Collector keeps what it is sent. Its methods are safe for concurrent use.
type Collector struct {
	traces.UnimplementedTraceServiceServer

	// Address is where it listens, as host:port.
	Address string

	accepted atomic.Int64

	mu      sync.Mutex
	spans   []Span
	content strings.Builder
}

// Span is a span as it was sent.
type Span struct {
	// Service is the program's name.
	Service string
	Name    string
	// Trace, ID and Parent are identifiers; that of the parent is empty at the root of a trace.
	Trace, ID, Parent string
	// Attributes are the span's own.
	Attributes map[string]string
	// Failed is true when the span says that it ended in an error.
	Failed bool

	began uint64
}

// Start listens until the end of the test.
func Start(t testing.TB, options ...grpc.ServerOption) *Collector {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Collector{Address: listener.Addr().String()}
	server := grpc.NewServer(options...)
	traces.RegisterTraceServiceServer(server, c)
	done := make(chan error, 1)
	go func() { done <- server.Serve(counted{listener, &c.accepted}) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c
}

// counted counts connections.
type counted struct {
	net.Listener
	accepted *atomic.Int64
}

// Accept is of net.Listener.
func (c counted) Accept() (net.Conn, error) {
	connection, err := c.Listener.Accept()
	if err == nil {
		c.accepted.Add(1)
	}
	return connection, err
}

// Environment has a program with --tracing send its spans here soon, in plain text.
func (c *Collector) Environment() []string {
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + c.Address, "OTEL_BSP_SCHEDULE_DELAY=50"}
}

// Connections is how many there have been.
func (c *Collector) Connections() int64 { return c.accepted.Load() }

// Spans are all that have come, by when they began.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(c.spans), func(a, b Span) int { return cmp.Compare(a.began, b.began) })
}

// Content is everything that was sent, as text.
func (c *Collector) Content() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.content.String()
}

// Export is of the protocol: it takes spans.
func (c *Collector) Export(
	ctx context.Context, request *traces.ExportTraceServiceRequest,
) (*traces.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	headers, _ := metadata.FromIncomingContext(ctx)
	fmt.Fprintln(&c.content, headers, request)
	for _, of := range request.GetResourceSpans() {
		service := attributes(of.GetResource().GetAttributes())["service.name"]
		for _, scope := range of.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				c.spans = append(c.spans, Span{
					Service: service, Name: span.GetName(), Attributes: attributes(span.GetAttributes()),
					Trace: fmt.Sprintf("%x", span.GetTraceId()), ID: fmt.Sprintf("%x", span.GetSpanId()),
					Parent: fmt.Sprintf("%x", span.GetParentSpanId()), began: span.GetStartTimeUnixNano(),
					Failed: span.GetStatus().GetCode() == tracev1.Status_STATUS_CODE_ERROR,
				})
			}
		}
	}
	return &traces.ExportTraceServiceResponse{}, nil
}

func attributes(of []*commonv1.KeyValue) map[string]string {
	texts := map[string]string{}
	for _, attribute := range of {
		switch value := attribute.GetValue().GetValue().(type) {
		case *commonv1.AnyValue_StringValue:
			texts[attribute.GetKey()] = value.StringValue
		case *commonv1.AnyValue_IntValue:
			texts[attribute.GetKey()] = fmt.Sprint(value.IntValue)
		default:
			texts[attribute.GetKey()] = attribute.GetValue().String()
		}
	}
	return texts
}

// Tree is a span with all that came from it, one in a line, each below its parent and behind it in the order of their
// beginning, with its attributes, and whether it failed.
func Tree(root Span, spans []Span) string {
	var text strings.Builder
	var write func(span Span, indent string)
	write = func(span Span, indent string) {
		text.WriteString(indent + span.Name)
		for _, key := range slices.Sorted(maps.Keys(span.Attributes)) {
			fmt.Fprintf(&text, " %s=%s", strings.TrimPrefix(key, "stageset."), span.Attributes[key])
		}
		if span.Failed {
			text.WriteString(" (failed)")
		}
		text.WriteString("\n")
		for _, child := range spans {
			if child.Trace == span.Trace && child.Parent == span.ID {
				write(child, indent+"  ")
			}
		}
	}
	write(root, "")
	return text.String()
}
