package admission_test

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// histogram has, for upper bounds in seconds, how many requests took no longer.
type histogram map[float64]float64

// validated is how long the replica took for its verdicts about creations, whatever they were.
func (r *replica) validated(t testing.TB) histogram {
	t.Helper()
	found := histogram{}
	for series, count := range r.measure(t) {
		labels, ours := strings.CutPrefix(series, `stageset_admission_seconds_bucket{operation="CREATE",`)
		_, bound, bounded := strings.Cut(strings.TrimSuffix(labels, `"}`), `webhook="/stagesets/validate",le="`)
		if !ours || !bounded {
			continue
		}
		upper, err := strconv.ParseFloat(bound, 64)
		if err != nil {
			t.Fatalf("%s: %v", series, err)
		}
		found[upper] += count
	}
	return found
}

// since is what was added to an earlier histogram.
func (h histogram) since(before histogram) histogram {
	added := maps.Clone(h)
	for bound, count := range before {
		added[bound] -= count
	}
	return added
}

// quantile is the number of seconds that a fraction q of the requests did not exceed, as Prometheus estimates it: evenly
// spread within a bucket. What exceeds every bound is infinite.
func (h histogram) quantile(q float64) float64 {
	want := q * h[math.Inf(1)]
	var lower, below float64
	for _, upper := range slices.Sorted(maps.Keys(h)) {
		if count := h[upper]; count >= want && count > below {
			if math.IsInf(upper, 1) {
				return upper
			}
			return lower + (upper-lower)*(want-below)/(count-below)
		}
		lower, below = upper, h[upper]
	}
	return math.NaN()
}

func TestQuantileIsEstimatedWithinABucket(t *testing.T) {
	h := histogram{1: 50, 2: 90, 4: 98, math.Inf(1): 100}
	for q, want := range map[float64]float64{0.25: 0.5, 0.5: 1, 0.7: 1.5, 0.94: 3, 0.98: 4, 0.99: math.Inf(1)} {
		if got := h.quantile(q); got != want && math.Abs(got-want) > 1e-9 {
			t.Errorf("%v: %v, want %v", q, got, want)
		}
	}
}
