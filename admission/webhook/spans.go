package webhook

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// tracerName is who makes the spans.
const tracerName = "github.com/stageset/stageset/admission"

// trace makes a span of each request to path, in the trace of the API server's request if it has one.
func (s *Server) trace(path string, next http.Handler) http.Handler {
	if s.Tracing == nil {
		return next
	}
	tracer := s.Tracing.Tracer(tracerName)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := tracer.Start(ctx, path, trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// describe says in the span of a request what it is about and how it was answered, and in the log which trace it has.
func describe(next admission.Handler) admission.Handler {
	return admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
		span := trace.SpanFromContext(ctx)
		if !span.IsRecording() {
			return next.Handle(ctx, request)
		}
		logger := log.FromContext(ctx).WithValues("trace_id", span.SpanContext().TraceID().String())
		response := next.Handle(log.IntoContext(ctx, logger), request)
		span.SetAttributes(
			attribute.String("stageset.namespace", request.Namespace),
			attribute.String("stageset.name", request.Name),
			attribute.String("stageset.operation", string(request.Operation)),
			attribute.String("stageset.verdict", verdict(response)),
		)
		if verdict(response) == verdictError {
			span.SetStatus(otelcodes.Error, verdictError)
		}
		return response
	})
}

// begin begins what the policies do for a request, as a span of its own.
func begin(ctx context.Context, name string) (context.Context, trace.Span) {
	return trace.SpanFromContext(ctx).TracerProvider().Tracer(tracerName).Start(ctx, name)
}
