package certs

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// bundleManager is the field manager of every caBundle. It owns nothing else.
const bundleManager = "stageset-admission-ca"

// injector keeps the caBundle of both webhook configurations what it should be. Only the elected leader runs it.
type injector struct {
	options Options
	client  client.Client
}

// Reconcile compares both configurations with the CAs in the Secret and rewrites a bundle that is wrong. The rotator writes
// the Secret too: a write that crosses one of its own is given up, and the change that came first wakes us again.
func (i *injector) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	result, err := i.reconcile(ctx)
	if apierrors.IsConflict(err) {
		log.FromContext(ctx).V(1).Info("the Secret has changed meanwhile", "err", err.Error())
		return reconcile.Result{}, nil
	}
	return result, err
}

func (i *injector) reconcile(ctx context.Context) (reconcile.Result, error) {
	var secret corev1.Secret
	if err := i.client.Get(ctx, i.options.Secret, &secret); err != nil {
		// Without the Secret the bundles stay as they are: replicas serve on with what they have. The Keyring logs it.
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	issued, err := parseMaterial(secret.Data)
	if err != nil {
		// An empty Secret is the rotator's to fill, and a mangled one its to replace. Either way we are woken again.
		log.FromContext(ctx).V(1).Info("leaving the bundles as they are", "err", err.Error())
		return reconcile.Result{}, nil
	}
	now := i.options.Clock.Now()
	if _, err := verify(issued.pair, encodeBundle(issued.authority), i.options.DNSNames, now); err != nil {
		return reconcile.Result{}, i.reissue(ctx, &secret, err)
	}
	found, err := readConfigurations(ctx, i.client, i.options.Configuration)
	if err != nil {
		return reconcile.Result{}, err
	}
	line := readSuccession(secret.Data, now).next(issued.authority, found.bundles(), now)
	// First the record, then the bundles: whoever is interrupted in between finds the record.
	if err := i.record(ctx, &secret, line); err != nil {
		return reconcile.Result{}, err
	}
	bundle := encodeBundle(append([]*x509.Certificate{issued.authority}, line.previous...)...)
	var result reconcile.Result
	if len(line.previous) > 0 {
		result.RequeueAfter = max(line.end().Sub(now), time.Second)
	}
	return result, i.inject(ctx, found, bundle)
}

// record keeps the succession in the Secret.
func (i *injector) record(ctx context.Context, secret *corev1.Secret, line succession) error {
	secret = secret.DeepCopy()
	if !line.write(secret.Data) {
		return nil
	}
	if err := i.client.Update(ctx, secret); err != nil {
		return fmt.Errorf("recording the CAs before the current one in Secret %s: %w", i.options.Secret, err)
	}
	log.FromContext(ctx).Info("recorded the CAs before the current one", "authorities", len(line.previous))
	return nil
}

// inject writes the bundle into every configuration that exists and has another one.
func (i *injector) inject(ctx context.Context, found configurations, bundle []byte) error {
	var failures []error
	for _, c := range found {
		if c.missing() || c.has(bundle) {
			continue
		}
		err := i.client.Apply(ctx, c.apply(c, bundle), client.FieldOwner(bundleManager), client.ForceOwnership)
		if err != nil {
			failures = append(failures, fmt.Errorf("writing the caBundle of %s: %w", c, err))
			continue
		}
		log.FromContext(ctx).Info("wrote the caBundle", "configuration", c.String(), "authorities", len(parseBundle(bundle)))
	}
	return errors.Join(failures...)
}

// reissue asks the rotator for a new serving certificate by emptying the keys of the old one: a Secret of the type for TLS
// must have them. The rotator itself looks only at the first DNS name, so a certificate that lacks another one would stay
// for a year. The CA stays.
func (i *injector) reissue(ctx context.Context, secret *corev1.Secret, cause error) error {
	if _, lacksName := errors.AsType[x509.HostnameError](cause); !lacksName {
		return nil // expired, or of another CA: the rotator sees that itself
	}
	log.FromContext(ctx).Info("asking for a new serving certificate", "err", cause.Error())
	secret = secret.DeepCopy()
	secret.Data[keyCertificate], secret.Data[keyPrivate] = []byte{}, []byte{}
	if err := i.client.Update(ctx, secret); err != nil {
		return fmt.Errorf("taking the serving certificate out of Secret %s: %w", i.options.Secret, err)
	}
	return nil
}
