package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// The keys of the Secret, as cert-controller's rotator writes them, and the names of the files of ProviderFiles, as
// cert-manager calls them.
const (
	keyCA          = "ca.crt"
	keyCertificate = "tls.crt"
	keyPrivate     = "tls.key"
)

// errNotIssued means that the rotator has not filled the Secret yet.
var errNotIssued = errors.New("no certificate has been issued yet")

// material is a certificate with its CA. The leaf is set in pair.Leaf.
type material struct {
	authority *x509.Certificate
	pair      *tls.Certificate
}

// parseMaterial reads the CA and the serving certificate from the data of a Secret. The error is errNotIssued when there is
// none; no error repeats anything of the values.
func parseMaterial(data map[string][]byte) (material, error) {
	authorities := parseBundle(data[keyCA])
	certificate, private := data[keyCertificate], data[keyPrivate]
	if len(authorities) == 0 || len(certificate) == 0 || len(private) == 0 {
		return material{}, errNotIssued
	}
	pair, err := tls.X509KeyPair(certificate, private)
	if err != nil {
		return material{}, fmt.Errorf("keys %s and %s are not a key pair: %w", keyCertificate, keyPrivate, err)
	}
	return material{authority: authorities[0], pair: &pair}, nil
}
