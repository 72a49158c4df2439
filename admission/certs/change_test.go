package certs

import (
	"crypto/tls"
	"slices"
	"testing"
	"time"
)

// P-38: what is served changes only when nothing is lost by it: once every API server trusts the new certificate, or when
// none trusts the old one any more.
func TestStepChangesOverOnlyWhenNothingIsLost(t *testing.T) {
	ca := newAuthority(t, subject, noon.Add(time.Hour))
	before, after, newest := ca.issue(t, "one.svc"), ca.issue(t, "one.svc"), ca.issue(t, "one.svc")
	type moment struct {
		offered    *tls.Certificate
		everywhere []*tls.Certificate // trusted by every entry of both configurations
		somewhere  []*tls.Certificate // trusted by at least one
		passed     time.Duration      // since the moment before
		want       *tls.Certificate
		wait       time.Duration
	}
	all := []*tls.Certificate{before, after, newest}
	for name, test := range map[string]struct {
		served  *tls.Certificate
		moments []moment
	}{
		"the first one at once, trusted or not": {nil, []moment{
			{offered: after, want: after},
		}},
		"the same one again": {before, []moment{
			{offered: before, everywhere: all, somewhere: all, want: before},
		}},
		"waits for both configurations, and then for the API servers": {before, []moment{
			{offered: after, everywhere: []*tls.Certificate{before}, somewhere: all, want: before},
			{offered: after, everywhere: all, somewhere: all, want: before, wait: settle},
			{offered: after, everywhere: all, somewhere: all, passed: 2 * time.Second, want: before, wait: settle - 2*time.Second},
			{offered: after, everywhere: all, somewhere: all, passed: settle, want: after},
		}},
		"waits anew for a newer one": {before, []moment{
			{offered: after, everywhere: all, somewhere: all, want: before, wait: settle},
			{offered: newest, everywhere: all, somewhere: all, passed: settle, want: before, wait: settle},
			{offered: newest, everywhere: all, somewhere: all, passed: settle, want: newest},
		}},
		"waits anew when trust is lost meanwhile": {before, []moment{
			{offered: after, everywhere: all, somewhere: all, want: before, wait: settle},
			{offered: after, everywhere: []*tls.Certificate{before}, somewhere: all, passed: settle, want: before},
			{offered: after, everywhere: all, somewhere: all, want: before, wait: settle},
		}},
		"at once when nobody trusts what is served": {before, []moment{
			{offered: after, somewhere: []*tls.Certificate{after}, want: after},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var c change
			served, now := test.served, noon
			for i, m := range test.moments {
				now = now.Add(m.passed)
				next, wait := c.step(served, m.offered, trust{everywhere: among(m.everywhere), somewhere: among(m.somewhere)}, now)
				if next != m.want || wait != m.wait {
					t.Fatalf("moment %d: right certificate: %t, wait %s, want %s", i, next == m.want, wait, m.wait)
				}
				served = next
			}
		})
	}
}

func among(list []*tls.Certificate) func(*tls.Certificate) bool {
	return func(pair *tls.Certificate) bool { return slices.Contains(list, pair) }
}
