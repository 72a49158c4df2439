package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"
)

// noon is when these tests take place.
var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// subject is that of the CAs that the rotator makes.
const subject = "stageset-admission-ca"

// authority is a CA as the rotator makes them, only quicker.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	chain       [][]byte // what a server sends along with a certificate of this CA
}

func newAuthority(t *testing.T, subject string, notAfter time.Time) authority {
	t.Helper()
	key := newKey(t)
	template := authorityTemplate(subject, notAfter)
	return authority{certificate: sign(t, template, template, key, key), key: key}
}

// subordinate makes a CA that a vouches for.
func (a authority) subordinate(t *testing.T, subject string) authority {
	t.Helper()
	key := newKey(t)
	certificate := sign(t, authorityTemplate(subject, a.certificate.NotAfter), a.certificate, key, a.key)
	return authority{certificate: certificate, key: key, chain: [][]byte{certificate.Raw}}
}

func authorityTemplate(subject string, notAfter time.Time) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(0), Subject: pkix.Name{CommonName: subject},
		NotBefore: noon.Add(-time.Hour), NotAfter: notAfter,
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
}

// issue makes a serving certificate for the names, good until the same time as the CA.
func (a authority) issue(t *testing.T, names ...string) *tls.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: noon.Add(-time.Hour), NotAfter: a.certificate.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	key := newKey(t)
	leaf := sign(t, template, a.certificate, key, a.key)
	return &tls.Certificate{Certificate: append([][]byte{leaf.Raw}, a.chain...), PrivateKey: key, Leaf: leaf}
}

// data is that of a Secret with a new certificate for the names.
func (a authority) data(t *testing.T, names ...string) map[string][]byte {
	t.Helper()
	pair := a.issue(t, names...)
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		t.Fatalf("the key is a %T", pair.PrivateKey)
	}
	return map[string][]byte{keyCA: a.pem(), keyCertificate: encodeBundle(pair.Leaf), keyPrivate: encodeKey(t, key)}
}

func (a authority) pem() []byte { return encodeBundle(a.certificate) }

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t *testing.T, template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func encodeKey(t *testing.T, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}
