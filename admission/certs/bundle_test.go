package certs

import (
	"crypto/tls"
	"slices"
	"strings"
	"testing"
	"time"
)

// P-35: a CA that has expired vouches for nothing, however long the certificate is still good.
func TestVerifySaysWhyACertificateIsRefused(t *testing.T) {
	hour, day := noon.Add(time.Hour), noon.Add(24*time.Hour)
	ours, other, root := newAuthority(t, subject, hour), newAuthority(t, subject, hour), newAuthority(t, "root", day)
	longer := authority{key: ours.key}
	longer.certificate = sign(t, authorityTemplate(subject, day), authorityTemplate(subject, day), ours.key, ours.key)
	one, three := []string{"one.svc"}, []string{"one.svc", "three.svc"}
	pair, outliving := ours.issue(t, "one.svc", "two.svc"), longer.issue(t, "one.svc")
	below := root.subordinate(t, "intermediate").issue(t, "one.svc")
	for name, test := range map[string]struct {
		pair   *tls.Certificate
		bundle []byte
		names  []string
		now    time.Time
		until  time.Time
		want   string // part of the error; empty for none
	}{
		"trusted":              {pair, ours.pem(), []string{"one.svc", "two.svc"}, noon, hour, ""},
		"trusted among two":    {pair, slices.Concat(other.pem(), ours.pem()), one, noon, hour, ""},
		"of two the longer":    {pair, slices.Concat(ours.pem(), longer.pem()), one, noon, day, ""},
		"by an intermediate":   {below, root.pem(), one, noon, day, ""},
		"another CA":           {pair, other.pem(), one, noon, time.Time{}, "unknown authority"},
		"another name":         {pair, ours.pem(), three, noon, time.Time{}, "not trusted for three.svc"},
		"expired":              {pair, longer.pem(), one, noon.Add(2 * time.Hour), time.Time{}, "expired"},
		"the CA has expired":   {outliving, ours.pem(), one, noon.Add(2 * time.Hour), time.Time{}, "expired"},
		"empty bundle":         {pair, nil, one, noon, time.Time{}, "holds no certificate"},
		"no certificate in it": {pair, encodeKey(t, ours.key), one, noon, time.Time{}, "holds no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			until, err := verify(test.pair, test.bundle, test.names, test.now)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
			if !until.Equal(test.until) {
				t.Errorf("until %s, want %s", until, test.until)
			}
		})
	}
}
