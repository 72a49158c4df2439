package process_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/stageset/stageset/e2e/collector"
	"github.com/stageset/stageset/process"
)

// setenv sets environment variables of the form NAME=value.
func setenv(t *testing.T, variables ...string) {
	t.Helper()
	for _, variable := range variables {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
}

func TestTracingFlags(t *testing.T) {
	const (
		endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT="
		https    = endpoint + "https://collector:4317"
		noURL    = "--tracing: OTEL_EXPORTER_OTLP_ENDPOINT must be the URL of a collector, such as https://collector:4317"
	)
	on := []string{"--tracing"}
	for name, test := range map[string]struct {
		arguments, environment []string
		want                   string // the error; empty for none
	}{
		"off":                    {nil, nil, ""},
		"off, whatever there is": {nil, []string{endpoint + "nonsense"}, ""},
		"to nowhere":             {on, nil, noURL},
		"to what is no URL":      {on, []string{endpoint + "collector:4317"}, noURL},
		"TLS":                    {on, []string{https}, ""},
		"plain text":             {on, []string{endpoint + "http://collector:4317"}, ""},
		"a collector of traces":  {on, []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https://collector:4317"}, ""},
		"the protocol":           {on, []string{https, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, ""},
		"another protocol": {on, []string{https, "OTEL_EXPORTER_OTLP_PROTOCOL=http/json"},
			`--tracing: OTEL_EXPORTER_OTLP_PROTOCOL is "http/json": only grpc is spoken`},
		"TLS that is switched off": {on, []string{https, "OTEL_EXPORTER_OTLP_INSECURE=true"},
			"--tracing: OTEL_EXPORTER_OTLP_INSECURE contradicts the https of OTEL_EXPORTER_OTLP_ENDPOINT: plain text is http"},
	} {
		t.Run(name, func(t *testing.T) {
			setenv(t, test.environment...)
			var tracing process.Tracing
			flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
			tracing.AddFlags(flags)
			if err := flags.Parse(test.arguments); err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := tracing.Validate(); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

// What OpenTelemetry would only log, and go on with something else, ends the start; no value is told.
func TestTracingThatCannotBeRead(t *testing.T) {
	const secret = "hunter2"
	for name, test := range map[string]struct{ variable, want string }{
		"headers":          {"OTEL_EXPORTER_OTLP_HEADERS=Bearer " + secret, "cannot parse headers"},
		"a header's value": {"OTEL_EXPORTER_OTLP_HEADERS=key=%zz" + secret, "cannot escape header value"},
		"a missing file":   {"OTEL_EXPORTER_OTLP_CERTIFICATE=/nowhere/ca.crt", "cannot read tls ca cert file"},
		"a duration":       {"OTEL_EXPORTER_OTLP_TIMEOUT=" + secret, "cannot parse duration"},
		"a sampler":        {"OTEL_TRACES_SAMPLER=sometimes", "unsupported sampler: sometimes"},
		"attributes":       {"OTEL_RESOURCE_ATTRIBUTES=team", "OTEL_RESOURCE_ATTRIBUTES"},
	} {
		t.Run(name, func(t *testing.T) {
			setenv(t, "OTEL_EXPORTER_OTLP_ENDPOINT=https://127.0.0.1:1", test.variable)
			var out bytes.Buffer
			logging := process.Logging{Level: "debug", Format: "json"}
			_, _, err := (&process.Tracing{Enabled: true}).Start(t.Context(), "program", logging.Start(&out))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("error %v, want %q", err, test.want)
			}
			if strings.Contains(err.Error()+out.String(), secret) {
				t.Errorf("a value is told: %v\n%s", err, &out)
			}
		})
	}
}

// start makes a program's spans, and returns what has one sent.
func start(t *testing.T, log *bytes.Buffer) (send func()) {
	t.Helper()
	logging := process.Logging{Level: "info", Format: "text"}
	provider, end, err := (&process.Tracing{Enabled: true}).Start(t.Context(), "program", logging.Start(log))
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		_, span := provider.Tracer("test").Start(context.Background(), "one")
		span.End()
		end()
	}
}

// Spans go by TLS, to whom its authority is known, with the headers that the collector wants; what the program ends with is
// sent at its end.
func TestTracesAreSentByTLS(t *testing.T) {
	certificate := httptest.NewTLSServer(nil)
	defer certificate.Close()
	server := certificate.TLS.Certificates[0]
	secure := func() *collector.Collector {
		return collector.Start(t, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{server}})))
	}
	authority := filepath.Join(t.TempDir(), "ca.crt")
	content := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate().Raw})
	if err := os.WriteFile(authority, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		to        *collector.Collector
		scheme    string
		authority string
		want      int
	}{
		"with its authority":    {secure(), "https://", authority, 1},
		"without its authority": {secure(), "https://", "", 0},
		"TLS to plain text":     {collector.Start(t), "https://", authority, 0},
		"plain text":            {collector.Start(t), "http://", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			setenv(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+test.scheme+test.to.Address,
				"OTEL_EXPORTER_OTLP_HEADERS=x-key=of the program", "OTEL_EXPORTER_OTLP_CERTIFICATE="+test.authority,
				"OTEL_RESOURCE_ATTRIBUTES=team=platform")
			var log bytes.Buffer
			start(t, &log)()
			spans := test.to.Spans()
			if len(spans) != test.want {
				t.Fatalf("%d spans, want %d; log:\n%s", len(spans), test.want, &log)
			}
			if test.want == 0 {
				if strings.Count(log.String(), "traces are not sent") != 1 {
					t.Errorf("log:\n%s", &log)
				}
				return
			}
			if spans[0].Service != "program" || spans[0].Name != "one" {
				t.Errorf("got %+v", spans[0])
			}
			for _, want := range []string{"of the program", "platform", "development"} {
				if !strings.Contains(test.to.Content(), want) {
					t.Errorf("%q was not sent:\n%s", want, test.to.Content())
				}
			}
		})
	}
}

// Nobody waits at the end for a collector that is away: OpenTelemetry's own patience is a minute.
func TestEndDoesNotWaitForACollector(t *testing.T) {
	setenv(t, "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1")
	var log bytes.Buffer
	send := start(t, &log)
	began := time.Now()
	send()
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
	if !strings.Contains(log.String(), "traces are not sent") {
		t.Errorf("nobody says that a span is lost:\n%s", &log)
	}
}

// A ratio is of traces, not of spans.
func TestSampling(t *testing.T) {
	to := collector.Start(t)
	setenv(t, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+to.Address, "OTEL_TRACES_SAMPLER=parentbased_traceidratio",
		"OTEL_TRACES_SAMPLER_ARG=0.5")
	var log bytes.Buffer
	logging := process.Logging{Level: "info", Format: "text"}
	provider, end, err := (&process.Tracing{Enabled: true}).Start(t.Context(), "program", logging.Start(&log))
	if err != nil {
		t.Fatal(err)
	}
	const traces = 200
	for range traces {
		ctx, root := provider.Tracer("test").Start(context.Background(), "root")
		_, child := provider.Tracer("test").Start(ctx, "child")
		child.End()
		root.End()
	}
	end()
	roots, children := 0, 0
	for _, span := range to.Spans() {
		if span.Parent == "" {
			roots++
		} else {
			children++
		}
	}
	if roots != children || roots < traces/5 || roots > traces*4/5 {
		t.Errorf("%d roots and %d children of %d traces", roots, children, traces)
	}
}
