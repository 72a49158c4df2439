package certs

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const subject = "stageset-admission-ca"

// P-36, P-38: the CA before stays as long as it may be served under, and nothing stays that is not ours or has expired.
func TestComposeBundle(t *testing.T) {
	year := noon.AddDate(1, 0, 0)
	current, first, second, third := newAuthority(t, subject, year), newAuthority(t, subject, year),
		newAuthority(t, subject, year), newAuthority(t, subject, year)
	expired := newAuthority(t, subject, noon)
	foreign := newAuthority(t, "somebody-else", year)
	mangled := []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	names := map[string]string{
		string(current.pem()): "current", string(first.pem()): "first", string(second.pem()): "second",
		string(third.pem()): "third", string(expired.pem()): "expired", string(foreign.pem()): "foreign",
	}
	for name, test := range map[string]struct {
		existing [][]byte
		want     []string
	}{
		"nothing before":                  {nil, []string{"current"}},
		"already there":                   {[][]byte{current.pem()}, []string{"current"}},
		"one before":                      {[][]byte{first.pem()}, []string{"current", "first"}},
		"the same in both configurations": {[][]byte{first.pem(), first.pem()}, []string{"current", "first"}},
		"different in both":               {[][]byte{first.pem(), second.pem()}, []string{"current", "first", "second"}},
		"no more than three": {
			[][]byte{first.pem(), second.pem(), third.pem()}, []string{"current", "first", "second"},
		},
		"expired":           {[][]byte{expired.pem()}, []string{"current"}},
		"not ours":          {[][]byte{foreign.pem()}, []string{"current"}},
		"wiped and mangled": {[][]byte{nil, mangled}, []string{"current"}},
		"keeps its order when run again": {
			[][]byte{append(current.pem(), append(second.pem(), first.pem()...)...)}, []string{"current", "second", "first"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, certificate := range parseBundle(composeBundle(current.certificate, test.existing, noon)) {
				got = append(got, names[string(encodeCertificate(certificate))])
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("authorities (-want +got):\n%s", diff)
			}
		})
	}
}

func TestVerifyLeafSaysWhyALeafIsRefused(t *testing.T) {
	ours := newAuthority(t, subject, noon.Add(time.Hour))
	leaf := ours.issue(t, "one.svc", "two.svc").Leaf
	other := newAuthority(t, subject, noon.Add(time.Hour))
	for name, test := range map[string]struct {
		bundle []byte
		names  []string
		now    time.Time
		want   string // part of the error; empty for none
	}{
		"trusted":           {ours.pem(), []string{"one.svc", "two.svc"}, noon, ""},
		"trusted among two": {append(other.pem(), ours.pem()...), []string{"one.svc"}, noon, ""},
		"another CA":        {other.pem(), []string{"one.svc"}, noon, "unknown authority"},
		"another name":      {ours.pem(), []string{"one.svc", "three.svc"}, noon, "not trusted for three.svc"},
		"expired":           {ours.pem(), []string{"one.svc"}, noon.Add(2 * time.Hour), "expired"},
		"empty bundle":      {nil, []string{"one.svc"}, noon, "holds no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			err := verifyLeaf(leaf, test.bundle, test.names, test.now)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

func TestParseSecretNeverRepeatsAValue(t *testing.T) {
	ours := newAuthority(t, subject, noon.Add(time.Hour))
	good := newSecret(t, ours, "one.svc")
	for name, test := range map[string]struct {
		change map[string][]byte
		want   string // part of the error; empty for none
	}{
		"as the rotator writes it": {nil, ""},
		"empty":                    {map[string][]byte{keyCA: nil, keyCertificate: nil, keyPrivate: nil}, errNotIssued.Error()},
		"no CA":                    {map[string][]byte{keyCA: nil}, errNotIssued.Error()},
		"key of another":           {map[string][]byte{keyPrivate: encodeKey(t, newKey(t))}, "not a key pair"},
		"no PEM":                   {map[string][]byte{keyPrivate: []byte("hunter2-hunter2")}, "not a key pair"},
	} {
		t.Run(name, func(t *testing.T) {
			secret := good.DeepCopy()
			for key, value := range test.change {
				secret.Data[key] = value
			}
			_, err := parseSecret(secret)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
			for key, value := range test.change {
				if err != nil && len(value) > 0 && bytes.Contains([]byte(err.Error()), value) {
					t.Errorf("the error repeats %s: %v", key, err)
				}
			}
		})
	}
}
