package certs

import (
	"crypto/x509"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// P-36, P-38: the CAs before the current one stay as long as they may be served under, and nothing stays that is not ours,
// has expired, or was replaced a day ago.
func TestSuccession(t *testing.T) {
	year := noon.AddDate(1, 0, 0)
	names := []string{"current", "first", "second", "third", "fourth", "fifth"}
	made := map[string]authority{"expired": newAuthority(t, subject, noon), "foreign": newAuthority(t, "somebody", year)}
	for _, name := range names {
		made[name] = newAuthority(t, subject, year)
	}
	bundle := func(of ...string) []byte {
		var list []*x509.Certificate
		for _, name := range of {
			list = append(list, made[name].certificate)
		}
		return encodeBundle(list...)
	}
	mangled := []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	at := func(before time.Duration) []byte { return []byte(noon.Add(-before).Format(time.RFC3339)) }
	for name, test := range map[string]struct {
		previous []byte   // ca-previous.crt
		replaced []byte   // ca-previous.time
		bundles  [][]byte // of the webhooks
		want     []string
		since    time.Duration // before noon
	}{
		"the first CA":           {bundles: [][]byte{nil, nil}},
		"nothing has changed":    {bundles: [][]byte{bundle("current"), bundle("current")}},
		"replaced just now":      {bundles: [][]byte{bundle("first"), bundle("first")}, want: []string{"first"}},
		"recorded, not injected": {bundle("first"), at(time.Minute), [][]byte{bundle("first")}, []string{"first"}, time.Minute},
		"injected in one of two": {
			bundle("first"), at(time.Minute), [][]byte{bundle("current", "first"), bundle("first")}, []string{"first"}, time.Minute,
		},
		"injected in both": {
			bundle("first"), at(time.Hour), [][]byte{bundle("current", "first"), bundle("current", "first")}, []string{"first"},
			time.Hour,
		},
		"the bundles were wiped": {bundle("first"), at(time.Hour), [][]byte{nil, mangled}, []string{"first"}, time.Hour},
		"a day later": {
			previous: bundle("first"), replaced: at(keepPrevious), bundles: [][]byte{bundle("current", "first")},
		},
		"a day later, but never injected": {
			bundle("first"), at(keepPrevious), [][]byte{bundle("first")}, []string{"first"}, 0,
		},
		"taken out of the Secret to be distrusted": {bundles: [][]byte{bundle("current", "first"), bundle("current", "first")}},
		"replaced again": {
			bundle("first"), at(time.Hour), [][]byte{bundle("second", "first"), bundle("second", "first")},
			[]string{"second", "first"}, 0,
		},
		"the Secret was emptied again": {
			bundles: [][]byte{bundle("second", "first"), bundle("second", "first")}, want: []string{"second", "first"},
		},
		"an older Secret was restored": {
			bundle("second"), at(time.Hour), [][]byte{bundle("first", "current"), bundle("first", "current")},
			[]string{"first", "second"}, 0,
		},
		"different bundles": {bundles: [][]byte{bundle("first"), bundle("second")}, want: []string{"first", "second"}},
		"no more than four": {
			bundles: [][]byte{bundle("first", "second", "third", "fourth", "fifth")},
			want:    []string{"first", "second", "third", "fourth"},
		},
		"expired":              {previous: bundle("expired"), replaced: at(time.Hour), bundles: [][]byte{bundle("expired")}},
		"not ours":             {bundles: [][]byte{bundle("foreign")}},
		"behind a foreign one": {bundles: [][]byte{bundle("foreign", "first")}, want: []string{"first"}},
		"the time is missing": {
			previous: bundle("first"), bundles: [][]byte{bundle("current", "first")}, want: []string{"first"},
		},
		"the time is to come": {bundle("first"), at(-time.Hour), [][]byte{bundle("current", "first")}, []string{"first"}, 0},
		"the record is mangled": {
			previous: mangled, replaced: []byte("soon"), bundles: [][]byte{bundle("current", "first")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			data := map[string][]byte{keyCA: bundle("current")}
			if test.previous != nil {
				data[keyPrevious] = test.previous
			}
			if test.replaced != nil {
				data[keyPreviousTime] = test.replaced
			}
			want := map[string][]byte{keyCA: bundle("current")}
			if len(test.want) > 0 {
				want[keyPrevious], want[keyPreviousTime] = bundle(test.want...), at(test.since)
			}
			changes := !maps.EqualFunc(data, want, func(a, b []byte) bool { return string(a) == string(b) })

			line := readSuccession(data, noon).next(made["current"].certificate, test.bundles, noon)
			if changed := line.write(data); changed != changes {
				t.Errorf("it says that it changed the Secret: %t", changed)
			}
			if diff := cmp.Diff(readable(want, made), readable(data, made)); diff != "" {
				t.Errorf("the Secret (-want +got):\n%s", diff)
			}
		})
	}
}

// readable has the names of CAs instead of their certificates.
func readable(data map[string][]byte, made map[string]authority) map[string][]string {
	out := map[string][]string{}
	for key, value := range data {
		for _, certificate := range parseBundle(value) {
			for name, authority := range made {
				if authority.certificate.Equal(certificate) {
					out[key] = append(out[key], name)
				}
			}
		}
		if len(out[key]) == 0 {
			out[key] = []string{string(value)}
		}
	}
	return out
}
