package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"
)

const certificateBlock = "CERTIFICATE"

// parseBundle returns the certificates of PEM data in their order. Blocks of another type and blocks that do not parse are
// left out: a bundle that somebody mangled is still good for what can be read of it.
func parseBundle(data []byte) []*x509.Certificate {
	var found []*x509.Certificate
	for {
		var block *pem.Block
		block, data = pem.Decode(data)
		if block == nil {
			return found
		}
		if block.Type != certificateBlock {
			continue
		}
		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil {
			found = append(found, certificate)
		}
	}
}

func encodeBundle(certificates ...*x509.Certificate) []byte {
	var out bytes.Buffer
	for _, certificate := range certificates {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: certificate.Raw}))
	}
	return out.Bytes()
}

func containsCertificate(list []*x509.Certificate, wanted *x509.Certificate) bool {
	return slices.ContainsFunc(list, wanted.Equal)
}

// verify says why a client that trusts only bundle would refuse the certificate at one of the DNS names; nil when it would
// not, and then also until when: the end of the last CA in the bundle that vouches for it.
func verify(pair *tls.Certificate, bundle []byte, names []string, now time.Time) (until time.Time, err error) {
	authorities := parseBundle(bundle)
	if len(authorities) == 0 {
		return time.Time{}, errors.New("the bundle holds no certificate")
	}
	options := x509.VerifyOptions{
		Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, authority := range authorities {
		options.Roots.AddCert(authority)
	}
	for _, raw := range pair.Certificate[1:] {
		// What does not parse helps no client either.
		if intermediate, err := x509.ParseCertificate(raw); err == nil {
			options.Intermediates.AddCert(intermediate)
		}
	}
	for _, options.DNSName = range names {
		chains, err := pair.Leaf.Verify(options)
		if err != nil {
			return time.Time{}, fmt.Errorf("not trusted for %s: %w", options.DNSName, err)
		}
		for _, chain := range chains {
			if end := chain[len(chain)-1].NotAfter; end.After(until) {
				until = end
			}
		}
	}
	return until, nil
}
