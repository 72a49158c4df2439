package store

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies"
)

// The enforcement points of decisions.
const (
	// PointAdmission is a request.
	PointAdmission = "admission"
	// PointReconcile is what is stored, as the reconciler evaluates it.
	PointReconcile = "reconcile"
	// PointAudit is what is stored, as the audit evaluates it: nothing is enforced.
	PointAudit = "audit"
)

// The states of policies.
const (
	stateBuiltIn = "builtin"
	stateReady   = "ready"
	stateInvalid = "invalid"
)

// What violations lead to.
const (
	actionDeny  = "deny"
	actionWarn  = "warn"
	actionAudit = "audit"
)

// failures are the kinds of what cannot be evaluated.
var failures = []policies.FailureKind{
	policies.FailureText, policies.FailureParams, policies.FailureLimit, policies.FailureEvaluation,
}

// Metrics are the measurements of policies. It implements policies.Observer.
type Metrics struct {
	clock  clock.PassiveClock
	stored string

	seconds   *prometheus.HistogramVec
	cost      *prometheus.HistogramVec
	decisions *prometheus.CounterVec
	errors    *prometheus.CounterVec
	policies  *prometheus.GaugeVec
}

// NewMetrics registers the metrics of this package. The point is that of evaluations without a request: PointReconcile or
// PointAudit.
func NewMetrics(registry prometheus.Registerer, clock clock.PassiveClock, point string) (*Metrics, error) {
	m := &Metrics{
		clock: clock, stored: point,
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "stageset_policy_evaluation_seconds",
			Help:    "Time to evaluate the validations of one policy on one StageSet, source or object.",
			Buckets: prometheus.ExponentialBucketsRange(50e-6, 250e-3, 12),
		}, []string{"policy", "target"}),
		cost: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "stageset_policy_cost_units",
			Help: "CEL cost units of one evaluation of a policy; a rule may spend 200,000, and all policies of a request 2,000,000." +
				" What cannot come near that is counted in one evaluation of 64.",
			Buckets: prometheus.ExponentialBucketsRange(100, 1e6, 9),
		}, []string{"policy"}),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stageset_policy_decisions_total",
			Help: "Violations of each policy, by what they lead to (deny, warn, audit) and where (admission, reconcile, audit)." +
				" Dry runs are not counted.",
		}, []string{"policy", "action", "enforcement_point"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stageset_policy_errors_total",
			Help: "What could not be evaluated of each policy, by kind: text, params, limit, evaluation.",
		}, []string{"policy", "kind"}),
		policies: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "stageset_policies",
			Help: "How many policies there are, by state: builtin, ready, invalid.",
		}, []string{"state"}),
	}
	for _, collector := range []prometheus.Collector{m.seconds, m.cost, m.decisions, m.errors, m.policies} {
		if err := registry.Register(collector); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Begin implements policies.Observer.
func (m *Metrics) Begin(policy string, target v1alpha1.Target) func(cost uint64) {
	began := m.clock.Now()
	return func(cost uint64) {
		m.seconds.WithLabelValues(policy, string(target)).Observe(m.clock.Since(began).Seconds())
		if cost > 0 {
			m.cost.WithLabelValues(policy).Observe(float64(cost))
		}
	}
}

// Failed implements policies.Observer.
func (m *Metrics) Failed(policy string, kind policies.FailureKind) {
	m.errors.WithLabelValues(policy, string(kind)).Inc()
}

// Decided implements policies.Observer.
func (m *Metrics) Decided(outcome policies.Outcome) {
	if outcome.DryRun {
		return
	}
	point := PointAdmission
	if outcome.Stored {
		point = m.stored
	}
	for _, list := range []struct {
		action     string
		violations []policies.Violation
	}{{actionDeny, outcome.Denied}, {actionWarn, outcome.Warned}, {actionAudit, outcome.Audited}} {
		for _, violation := range list.violations {
			m.decisions.WithLabelValues(violation.Policy, list.action, point).Inc()
		}
	}
}

// published counts the policies of set, and forgets those that are gone.
func (m *Metrics) published(before []policies.Summary, now []policies.Summary) {
	states := map[string]int{stateBuiltIn: 0, stateReady: 0, stateInvalid: 0}
	names := map[string]bool{}
	for _, policy := range now {
		names[policy.Name] = true
		for _, kind := range failures {
			m.errors.WithLabelValues(policy.Name, string(kind)) // an alert sees the first only where there was none before
		}
		switch {
		case policy.BuiltIn:
			states[stateBuiltIn]++
		case len(policy.Problems) > 0:
			states[stateInvalid]++
		default:
			states[stateReady]++
		}
	}
	for state, count := range states {
		m.policies.WithLabelValues(state).Set(float64(count))
	}
	for _, policy := range before {
		if names[policy.Name] {
			continue
		}
		of := prometheus.Labels{"policy": policy.Name}
		m.seconds.DeletePartialMatch(of)
		m.cost.DeletePartialMatch(of)
		m.decisions.DeletePartialMatch(of)
		m.errors.DeletePartialMatch(of)
	}
}
