package controller

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/stageset/stageset/reconciler/failure"
)

const (
	// tracerName is who makes the spans.
	tracerName = "github.com/stageset/stageset/reconciler"
	// prefix is that of the attributes of spans.
	prefix = "stageset."
)

// beginPass begins the trace of a pass. Whatever is logged with the context names the trace, if it is sent at all.
func (r *Reconciler) beginPass(ctx context.Context, of types.NamespacedName) (within context.Context, end func()) {
	ctx, span := r.Tracing.Tracer(tracerName).Start(ctx, "reconcile")
	if span.IsRecording() {
		span.SetAttributes(attribute.String(prefix+"namespace", of.Namespace), attribute.String(prefix+"name", of.Name))
		ctx = log.IntoContext(ctx, log.FromContext(ctx).WithValues("trace_id", span.SpanContext().TraceID().String()))
	}
	return ctx, func() { span.End() }
}

// passEnded counts a pass by how it ended.
func passEnded(ctx context.Context, reason string) {
	passes.WithLabelValues(reason).Inc()
	span := trace.SpanFromContext(ctx)
	span.SetAttributes(attribute.String(prefix+"reason", reason))
	if reason == endedError {
		span.SetStatus(codes.Error, reason)
	}
}

// passFailed marks the trace of a pass that failed, unless it waits for somebody else. Its message is not in the trace.
func passFailed(ctx context.Context, failed *failure.Error) {
	span := trace.SpanFromContext(ctx)
	if failed.Stage != "" {
		span.SetAttributes(attribute.String(prefix+"stage", failed.Stage))
	}
	if failed.Kind != failure.Waiting {
		span.SetStatus(codes.Error, failed.Reason)
	}
}

// Steps measures how long the steps of passes take, and makes their spans.
type Steps struct {
	Clock clock.PassiveClock
}

// measuredSteps are the steps that stageset_step_seconds has. What else begins is traced alone: stages, and parts of steps.
var measuredSteps = map[string]bool{
	"dependencies": true, "sources": true, "build": true, "policies": true,
	"preflight": true, "apply": true, "health": true, "prune": true,
}

// Begin begins a step, a stage, or a part of a step, as a span of the trace that ctx is in; what it returns ends it. What it
// is about, texts and integers, are attributes of the span: names, numbers and digests, never what is in objects.
func (s Steps) Begin(ctx context.Context, name string, about ...slog.Attr) (within context.Context, end func()) {
	began := s.Clock.Now()
	ctx, span := trace.SpanFromContext(ctx).TracerProvider().Tracer(tracerName).Start(ctx, name)
	if span.IsRecording() {
		span.SetAttributes(attributes(about)...)
	}
	return ctx, func() {
		span.End()
		if measuredSteps[name] {
			steps.WithLabelValues(name).Observe(s.Clock.Since(began).Seconds())
		}
	}
}

func attributes(about []slog.Attr) []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, len(about))
	for _, attr := range about {
		if attr.Value.Kind() == slog.KindInt64 {
			all = append(all, attribute.Int64(prefix+attr.Key, attr.Value.Int64()))
			continue
		}
		all = append(all, attribute.String(prefix+attr.Key, attr.Value.String()))
	}
	return all
}
