package controller

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

var (
	descReady = prometheus.NewDesc("stageset_ready",
		"1 if the StageSet is Ready, else 0, with the reason of that condition: 1 with another reason than Succeeded while a newer"+
			" release is held.", []string{"namespace", "name", "reason"}, nil)
	descLooping = prometheus.NewDesc("stageset_drift_looping",
		"1 while somebody sets again and again what the StageSet applies; not there otherwise.", []string{"namespace", "name"}, nil)
)

// state is what is measured of a StageSet.
type state struct {
	ready   bool
	reason  string
	looping bool
}

// readiness has the states that StageSets were left in by their last pass, and measures them when it is asked to: each has one
// series, whatever reasons it went through.
type readiness struct {
	mu     sync.Mutex
	states map[types.NamespacedName]state
}

func (r *readiness) set(name types.NamespacedName, now state) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.states == nil {
		r.states = map[types.NamespacedName]state{}
	}
	r.states[name] = now
}

// forget ends what is measured of a StageSet.
func (r *readiness) forget(name types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.states, name)
}

// Describe sends what Collect may send.
func (r *readiness) Describe(out chan<- *prometheus.Desc) {
	out <- descReady
	out <- descLooping
}

// Collect sends the states.
func (r *readiness) Collect(out chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, now := range r.states {
		value := 0.0
		if now.ready {
			value = 1
		}
		out <- prometheus.MustNewConstMetric(descReady, prometheus.GaugeValue, value, name.Namespace, name.Name, now.reason)
		if now.looping {
			out <- prometheus.MustNewConstMetric(descLooping, prometheus.GaugeValue, 1, name.Namespace, name.Name)
		}
	}
}
