package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// problemInterval is how often a problem that stays is logged and counted.
const problemInterval = time.Minute

// provider is where a certificate to serve comes from.
type provider interface {
	// offered is what is to be served, which may be nothing yet. A *problem as the error does not concern what is served
	// already, and may come with a certificate.
	offered(ctx context.Context) (material, error)
}

// problem is what keeps the certificate from being renewed. What is in memory is served on.
type problem struct {
	kind   string // a value of the label kind of stageset_certificate_problems_total
	remedy string // what to do
	err    error
}

// Error says what is wrong, and nothing of the values of a Secret.
func (p *problem) Error() string { return p.err.Error() }

// Keyring is the certificate that this replica serves. Its methods may be called concurrently.
type Keyring struct {
	options  Options
	reader   client.Reader // this and provider are set by Setup, before anything calls Reconcile or Ready
	provider provider
	metrics  *keyringMetrics

	served atomic.Pointer[tls.Certificate]
	seen   atomic.Pointer[observation]
	change change // only Reconcile, which never runs twice at a time, touches it
}

// observation is what Reconcile saw last, for the metrics.
type observation struct {
	authority      *x509.Certificate // nil when none is known
	configurations configurations
}

// NewKeyring makes a Keyring that serves nothing until Setup's watches have found a certificate.
func NewKeyring(options Options) *Keyring {
	k := &Keyring{options: options}
	k.metrics = newMetrics(k)
	return k
}

// GetCertificate is for tls.Config. It fails until the first certificate was issued.
func (k *Keyring) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if served := k.served.Load(); served != nil {
		return served, nil
	}
	return nil, errNotIssued
}

// Ready is a readiness check: it fails until the certificate that this replica serves is one that the API server trusts
// through the caBundle of every entry of both webhook configurations, and again when one of them has expired.
func (k *Keyring) Ready(request *http.Request) error {
	served := k.served.Load()
	if served == nil {
		return errNotIssued
	}
	found, err := readConfigurations(request.Context(), k.reader, k.options.Configuration)
	if err != nil {
		return err
	}
	_, err = found.trust(served, k.options.DNSNames, k.options.Clock.Now())
	return err
}

// Reconcile looks at what is offered and at both configurations, and changes over to a new certificate when it is time.
func (k *Keyring) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	offered, err := k.provider.offered(ctx)
	known, recognized := errors.AsType[*problem](err)
	if err != nil && !recognized {
		return reconcile.Result{}, err
	}
	found, err := readConfigurations(ctx, k.reader, k.options.Configuration)
	if err != nil {
		return reconcile.Result{}, err
	}
	k.observe(offered.authority, found)
	var result reconcile.Result
	if recognized {
		k.metrics.problems.WithLabelValues(known.kind).Inc()
		const message = "the certificate cannot be renewed; serving on with the one in memory"
		log.FromContext(ctx).Error(known, message, "remedy", known.remedy)
		result.RequeueAfter = problemInterval
	}
	if offered.pair == nil {
		return result, nil
	}
	if wait := k.turn(ctx, offered.pair, found); wait > 0 {
		result.RequeueAfter = wait
	}
	return result, nil
}

// turn serves what is offered when it is time. It returns when to look again, 0 when nothing is waiting.
func (k *Keyring) turn(ctx context.Context, offered *tls.Certificate, found configurations) time.Duration {
	now := k.options.Clock.Now()
	served := k.served.Load()
	next, wait := k.change.step(served, offered, trustIn(found, k.options.DNSNames, now), now)
	if next != served {
		k.served.Store(next)
		log.FromContext(ctx).Info("serving a new certificate", "notAfter", next.Leaf.NotAfter)
	}
	return wait
}

// observe keeps what the metrics are made of. A CA that is not known any more is still the one that was.
func (k *Keyring) observe(authority *x509.Certificate, found configurations) {
	if before := k.seen.Load(); authority == nil && before != nil {
		authority = before.authority
	}
	k.seen.Store(&observation{authority: authority, configurations: found})
}
