package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// The keys of the Secret, as cert-controller's rotator writes them.
const (
	keyCA          = "ca.crt"
	keyCertificate = "tls.crt"
	keyPrivate     = "tls.key"
)

// errNotIssued means that the rotator has not filled the Secret yet.
var errNotIssued = errors.New("no certificate has been issued yet")

// material is what the Secret holds, parsed. The leaf is set in pair.Leaf.
type material struct {
	authority *x509.Certificate
	pair      *tls.Certificate
}

// parseSecret reads the CA and the serving certificate of a Secret. The error is errNotIssued when there is none; no error
// repeats anything of the Secret's values.
func parseSecret(secret *corev1.Secret) (material, error) {
	authorities := parseBundle(secret.Data[keyCA])
	certificate, private := secret.Data[keyCertificate], secret.Data[keyPrivate]
	if len(authorities) == 0 || len(certificate) == 0 || len(private) == 0 {
		return material{}, errNotIssued
	}
	pair, err := tls.X509KeyPair(certificate, private)
	if err != nil {
		return material{}, fmt.Errorf("keys %s and %s are not a key pair: %w", keyCertificate, keyPrivate, err)
	}
	if pair.Leaf == nil {
		return material{}, fmt.Errorf("key %s holds no certificate", keyCertificate)
	}
	return material{authority: authorities[0], pair: &pair}, nil
}
