package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// settle is how long a new certificate waits after both configurations trust it: the time in which every API server has
// seen the new bundle.
const settle = 5 * time.Second

// Options name what the certificate is for and where it is kept.
type Options struct {
	// Secret holds CA and serving certificate. It must exist, and may be empty.
	Secret types.NamespacedName
	// Configuration is the name of both the mutating and the validating webhook configuration.
	Configuration string
	// DNSNames are the names that the API server reaches the webhook by; at least one. The certificate is valid for all.
	DNSNames []string
	// Directory is where the public serving certificate is written. The rotator only starts its work when it sees one
	// there; the private key stays in memory.
	Directory string
	// Clock says what time it is.
	Clock clock.PassiveClock
}

// Keyring is the certificate that this replica serves. Its methods may be called concurrently.
type Keyring struct {
	options Options
	reader  client.Reader // set by Setup, before anything calls Reconcile or Ready
	served  atomic.Pointer[tls.Certificate]
	change  change // only Reconcile, which never runs twice at a time, touches it
}

// NewKeyring makes a Keyring that serves nothing until Setup's watches have found a certificate.
func NewKeyring(options Options) *Keyring {
	return &Keyring{options: options}
}

// GetCertificate is for tls.Config. It fails until the first certificate was issued.
func (k *Keyring) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if served := k.served.Load(); served != nil {
		return served, nil
	}
	return nil, errNotIssued
}

// Ready is a readiness check: it fails until the certificate that this replica serves is one that the API server trusts
// through the caBundle of every entry of both webhook configurations.
func (k *Keyring) Ready(request *http.Request) error {
	served := k.served.Load()
	if served == nil {
		return errNotIssued
	}
	found, err := readConfigurations(request.Context(), k.reader, k.options.Configuration)
	if err != nil {
		return err
	}
	return found.trust(served.Leaf, k.options.DNSNames, k.options.Clock.Now())
}

// Reconcile looks at the Secret and both configurations and changes over to a new certificate when it is time.
func (k *Keyring) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	offered, err := k.offered(ctx)
	if err != nil || offered == nil {
		return reconcile.Result{}, err
	}
	found, err := readConfigurations(ctx, k.reader, k.options.Configuration)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := k.options.Clock.Now()
	served := k.served.Load()
	next, wait := k.change.step(served, offered, trustIn(found, k.options.DNSNames, now), now)
	if next != served {
		if err := k.publish(next); err != nil {
			return reconcile.Result{}, err
		}
		log.FromContext(ctx).Info("serving a new certificate", "notAfter", next.Leaf.NotAfter)
	}
	return reconcile.Result{RequeueAfter: wait}, nil
}

// offered is the certificate in the Secret; nil when there is none that could be served.
func (k *Keyring) offered(ctx context.Context) (*tls.Certificate, error) {
	logger := log.FromContext(ctx)
	var secret corev1.Secret
	if err := k.reader.Get(ctx, k.options.Secret, &secret); apierrors.IsNotFound(err) {
		const message = "the Secret of the certificate is gone; serving on with the one in memory"
		logger.Error(err, message, "restore", k.options.Restore())
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", k.options.Secret, err)
	}
	found, err := parseSecret(&secret)
	if errors.Is(err, errNotIssued) {
		return nil, nil
	}
	if err != nil {
		const message = "the Secret holds no usable certificate; serving on with the one in memory"
		logger.Error(err, message, "secret", k.options.Secret)
		return nil, nil
	}
	return found.pair, nil
}

// publish writes the public certificate where the rotator looks for it and then serves it.
func (k *Keyring) publish(next *tls.Certificate) error {
	path := filepath.Join(k.options.Directory, keyCertificate)
	if err := os.WriteFile(path, encodeCertificate(next.Leaf), 0o600); err != nil {
		return fmt.Errorf("writing the public certificate for the rotator: %w", err)
	}
	k.served.Store(next)
	return nil
}

// Restore is the command that brings a deleted Secret back. Certificates are then issued anew.
func (o Options) Restore() string {
	return fmt.Sprintf("kubectl create secret generic %s --namespace %s", o.Secret.Name, o.Secret.Namespace)
}

// trust says what the webhook configurations make of a certificate.
type trust struct {
	everywhere func(*x509.Certificate) bool
	somewhere  func(*x509.Certificate) bool
}

func trustIn(found configurations, names []string, now time.Time) trust {
	return trust{
		everywhere: func(leaf *x509.Certificate) bool { return found.trust(leaf, names, now) == nil },
		somewhere:  func(leaf *x509.Certificate) bool { return found.trustedSomewhere(leaf, names, now) },
	}
}

// change remembers since when the certificate that waits to be served has been trusted everywhere.
type change struct {
	waiting *x509.Certificate
	since   time.Time
}

// step decides which certificate to serve now, and when to look again (zero: when something changes).
func (c *change) step(served, offered *tls.Certificate, trusts trust, now time.Time) (*tls.Certificate, time.Duration) {
	// Nothing to lose: no API server would accept what is served, if anything is.
	lost := served == nil || !trusts.somewhere(served.Leaf)
	switch {
	case served != nil && served.Leaf.Equal(offered.Leaf):
		*c = change{}
		return served, 0
	case lost:
		*c = change{}
		return offered, 0
	case !trusts.everywhere(offered.Leaf):
		*c = change{}
		return served, 0
	case !c.waiting.Equal(offered.Leaf):
		*c = change{waiting: offered.Leaf, since: now}
		return served, settle
	case now.Sub(c.since) < settle:
		return served, settle - now.Sub(c.since)
	default:
		*c = change{}
		return offered, 0
	}
}
