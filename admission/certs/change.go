package certs

import (
	"crypto/tls"
	"time"
)

// settle is how long a new certificate waits after both configurations trust it: the time in which every API server has
// seen the new bundle.
const settle = 5 * time.Second

// trust says what the webhook configurations make of a certificate.
type trust struct {
	everywhere func(*tls.Certificate) bool
	somewhere  func(*tls.Certificate) bool
}

func trustIn(found configurations, names []string, now time.Time) trust {
	return trust{
		everywhere: func(pair *tls.Certificate) bool {
			_, err := found.trust(pair, names, now)
			return err == nil
		},
		somewhere: func(pair *tls.Certificate) bool { return found.trustedSomewhere(pair, names, now) },
	}
}

// change remembers since when the certificate that waits to be served has been trusted everywhere.
type change struct {
	waiting *tls.Certificate
	since   time.Time
}

// step decides which certificate to serve now, and when to look again (zero: when something changes).
func (c *change) step(served, offered *tls.Certificate, trusts trust, now time.Time) (*tls.Certificate, time.Duration) {
	// Nothing to lose: no API server would accept what is served, if anything is.
	lost := served == nil || !trusts.somewhere(served)
	switch {
	case served != nil && served.Leaf.Equal(offered.Leaf):
		*c = change{}
		return served, 0
	case lost:
		*c = change{}
		return offered, 0
	case !trusts.everywhere(offered):
		*c = change{}
		return served, 0
	case c.waiting == nil || !c.waiting.Leaf.Equal(offered.Leaf):
		*c = change{waiting: offered, since: now}
		return served, settle
	case now.Sub(c.since) < settle:
		return served, settle - now.Sub(c.since)
	default:
		*c = change{}
		return offered, 0
	}
}
