package celenv

import (
	"testing"
	"time"
)

// BenchmarkUncounted evaluates a rule about 20 stages without counting what it costs. How much of the time that takes which
// counting takes is x-counted.
func BenchmarkUncounted(b *testing.B) {
	x, object := compileCounted(b, cheap[1]), whole(20)
	evaluate := func(measured bool) time.Duration {
		began := time.Now()
		scope := NewEvaluation(b.Context(), Values{Measured: measured}, 1).Group(nil, nil).Scope(b.Context(), object, nil)
		for range 50 { // rules that see the same object
			if value, err := scope.evaluate(x.Expression); err != nil {
				b.Fatal(value, err)
			}
		}
		return time.Since(began)
	}
	var uncounted, counted time.Duration
	for b.Loop() {
		uncounted += evaluate(false)
		counted += evaluate(true)
	}
	b.ReportMetric(uncounted.Seconds()/counted.Seconds(), "x-counted")
	b.ReportMetric(float64(uncounted.Microseconds())/float64(50*b.N), "µs/rule")
	b.ReportMetric(0, "ns/op") // is of both
}
