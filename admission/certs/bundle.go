package certs

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// maxAuthorities bounds a bundle: the current CA and the two before it. Two, because a Secret that is emptied twice in a
// row must not cut off a replica that still serves the first certificate.
const maxAuthorities = 3

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

// composeBundle is the bundle that the webhook configurations should have: the current CA first, then the CAs before it
// that the existing bundles still hold, as long as they are ours (the same subject) and have not expired.
func composeBundle(current *x509.Certificate, existing [][]byte, now time.Time) []byte {
	chosen := []*x509.Certificate{current}
	for _, data := range existing {
		for _, earlier := range parseBundle(data) {
			ours := earlier.IsCA && bytes.Equal(earlier.RawSubject, current.RawSubject)
			if ours && now.Before(earlier.NotAfter) && !containsCertificate(chosen, earlier) && len(chosen) < maxAuthorities {
				chosen = append(chosen, earlier)
			}
		}
	}
	var out bytes.Buffer
	for _, certificate := range chosen {
		out.Write(encodeCertificate(certificate))
	}
	return out.Bytes()
}

func encodeCertificate(certificate *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: certificate.Raw})
}

func containsCertificate(list []*x509.Certificate, wanted *x509.Certificate) bool {
	for _, certificate := range list {
		if certificate.Equal(wanted) {
			return true
		}
	}
	return false
}

// verifyLeaf says why a client that trusts only bundle would refuse leaf at one of the DNS names; nil when it would not.
func verifyLeaf(leaf *x509.Certificate, bundle []byte, names []string, now time.Time) error {
	authorities := parseBundle(bundle)
	if len(authorities) == 0 {
		return errors.New("the bundle holds no certificate")
	}
	pool := x509.NewCertPool()
	for _, authority := range authorities {
		pool.AddCert(authority)
	}
	for _, name := range names {
		_, err := leaf.Verify(x509.VerifyOptions{
			DNSName:     name,
			Roots:       pool,
			CurrentTime: now,
			KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		})
		if err != nil {
			return fmt.Errorf("not trusted for %s: %w", name, err)
		}
	}
	return nil
}
