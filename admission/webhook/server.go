package webhook

import (
	"context"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// The paths of the webhooks, as the webhook configurations name them.
const (
	PathDefault  = "/stagesets/default"
	PathValidate = "/stagesets/validate"
	// PathValidatePolicies is that for StageSetPolicies.
	PathValidatePolicies = "/stagesetpolicies/validate"
)

// maxPoliciesInFlight is how many policies are checked at a time. Each may take a second and more, and none may take time
// from StageSets.
const maxPoliciesInFlight = 2

// defaultTimeout is the timeoutSeconds of the webhook configurations. The API server says in each request how long it
// waits; this is for one that does not.
const defaultTimeout = 5 * time.Second

// Server bounds what requests may cost.
type Server struct {
	// StageSets and StageSetPolicies answer the requests.
	StageSets        *StageSets
	StageSetPolicies *StageSetPolicies
	// MaxInFlight is how many requests for StageSets are evaluated at a time; more are asked to come back in a second. At least 1.
	MaxInFlight int
	// Draining reports whether this replica is about to stop: clients are then told to close their connections, so that
	// none is left to break when the listener closes.
	Draining func() bool
	// Metrics counts; nil counts nothing.
	Metrics *Metrics
	// Tracing makes spans; nil makes none.
	Tracing trace.TracerProvider
}

// Register serves the webhooks at their paths.
func (s *Server) Register(server webhook.Server) {
	slots := make(chan struct{}, s.MaxInFlight)
	defaults := limit(slots, admission.HandlerFunc(s.StageSets.Default))
	validates := limit(slots, admission.HandlerFunc(s.StageSets.Validate))
	policies := limit(make(chan struct{}, maxPoliciesInFlight), admission.HandlerFunc(s.StageSetPolicies.Validate))
	for path, handler := range map[string]admission.Handler{
		PathDefault: defaults, PathValidate: validates, PathValidatePolicies: policies,
	} {
		server.Register(path, s.trace(path, s.answer(describe(s.Metrics.measure(path, handler)))))
	}
}

// answer has requests answered by handler, within bounds.
func (s *Server) answer(handler admission.Handler) http.Handler {
	return s.bound(&admission.Webhook{
		Handler: handler,
		// Few requests are worth a line, and naming one costs more than answering some: see loggerOf.
		LogConstructor: func(base logr.Logger, _ *admission.Request) logr.Logger { return base },
	})
}

// loggerOf is the logger of ctx for what there is to say about request.
func loggerOf(ctx context.Context, request admission.Request) logr.Logger {
	return admission.DefaultLogConstructor(log.FromContext(ctx), &request)
}

// limit refuses at once what finds no free slot: an answer that comes too late is worth nothing.
func limit(slots chan struct{}, next admission.Handler) admission.Handler {
	return admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			return next.Handle(ctx, request)
		default:
			return overloaded()
		}
	})
}

// bound gives each request a deadline of half the time that the API server waits, so that there is time left to say what
// went wrong. A request that is being answered when the server stops is still answered: the server's shutdown waits for it.
func (s *Server) bound(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.Draining() {
			w.Header().Set("Connection", "close")
		}
		timeout := requestTimeout(r) / 2
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), timeout)
		defer cancel()
		deadline, _ := ctx.Deadline()
		// Not every ResponseWriter can do this (that of a test cannot); those that read from a network can.
		_ = http.NewResponseController(w).SetReadDeadline(deadline)
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// requestTimeout is how long the API server waits for the answer.
func requestTimeout(r *http.Request) time.Duration {
	timeout, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil || timeout <= 0 || timeout > 30*time.Second {
		return defaultTimeout
	}
	return timeout
}
