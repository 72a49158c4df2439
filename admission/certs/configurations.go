package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	applyv1 "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// entry is one webhook of a configuration.
type entry struct {
	name   string
	bundle []byte
}

// configuration is what this package needs to know of a webhook configuration of either kind.
type configuration struct {
	kind    string
	name    string
	uid     types.UID // empty when the configuration does not exist
	entries []entry
	apply   func(configuration, []byte) runtime.ApplyConfiguration
}

func (c configuration) String() string { return c.kind + " " + c.name }

func (c configuration) missing() bool { return c.uid == "" }

// has reports whether every entry has exactly this bundle.
func (c configuration) has(bundle []byte) bool {
	for _, e := range c.entries {
		if !bytes.Equal(e.bundle, bundle) {
			return false
		}
	}
	return true
}

// configurations are the mutating and the validating one of this release.
type configurations []configuration

// readConfigurations reads both from a cache. One that does not exist is returned as missing, without an error.
func readConfigurations(ctx context.Context, reader client.Reader, name string) (configurations, error) {
	key := types.NamespacedName{Name: name}
	mutating := configuration{kind: "MutatingWebhookConfiguration", name: name, apply: applyMutating}
	var m admissionregistrationv1.MutatingWebhookConfiguration
	if err := reader.Get(ctx, key, &m); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading %s: %w", mutating, err)
	} else if !apierrors.IsNotFound(err) {
		mutating.uid = m.UID
		for _, webhook := range m.Webhooks {
			mutating.entries = append(mutating.entries, entry{webhook.Name, webhook.ClientConfig.CABundle})
		}
	}
	validating := configuration{kind: "ValidatingWebhookConfiguration", name: name, apply: applyValidating}
	var v admissionregistrationv1.ValidatingWebhookConfiguration
	if err := reader.Get(ctx, key, &v); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading %s: %w", validating, err)
	} else if !apierrors.IsNotFound(err) {
		validating.uid = v.UID
		for _, webhook := range v.Webhooks {
			validating.entries = append(validating.entries, entry{webhook.Name, webhook.ClientConfig.CABundle})
		}
	}
	return configurations{mutating, validating}, nil
}

// bundles are the bundles of all entries of both configurations.
func (cs configurations) bundles() [][]byte {
	var all [][]byte
	for _, c := range cs {
		for _, e := range c.entries {
			all = append(all, e.bundle)
		}
	}
	return all
}

// trust says why some entry of either configuration would make the API server refuse a certificate. When every entry of
// both accepts it, until is when the first of them stops to, because the CA in its bundle has expired.
func (cs configurations) trust(pair *tls.Certificate, names []string, now time.Time) (until time.Time, err error) {
	var problems []error
	for _, c := range cs {
		if c.missing() {
			problems = append(problems, fmt.Errorf("%s does not exist", c))
		}
		for _, e := range c.entries {
			end, err := verify(pair, e.bundle, names, now)
			if err != nil {
				problems = append(problems, fmt.Errorf("the caBundle of %s in %s: %w", e.name, c, err))
			} else if until.IsZero() || end.Before(until) {
				until = end
			}
		}
	}
	return until, errors.Join(problems...)
}

// trustedSomewhere reports whether at least one entry makes the API server accept a certificate.
func (cs configurations) trustedSomewhere(pair *tls.Certificate, names []string, now time.Time) bool {
	return slices.ContainsFunc(cs.bundles(), func(bundle []byte) bool {
		_, err := verify(pair, bundle, names, now)
		return err == nil
	})
}

// The apply configurations name the UID, so that a configuration that was deleted meanwhile is not created from a caBundle
// alone.

func applyMutating(c configuration, bundle []byte) runtime.ApplyConfiguration {
	out := applyv1.MutatingWebhookConfiguration(c.name).WithUID(c.uid)
	for _, e := range c.entries {
		out.WithWebhooks(applyv1.MutatingWebhook().WithName(e.name).
			WithClientConfig(applyv1.WebhookClientConfig().WithCABundle(bundle...)))
	}
	return out
}

func applyValidating(c configuration, bundle []byte) runtime.ApplyConfiguration {
	out := applyv1.ValidatingWebhookConfiguration(c.name).WithUID(c.uid)
	for _, e := range c.entries {
		out.WithWebhooks(applyv1.ValidatingWebhook().WithName(e.name).
			WithClientConfig(applyv1.WebhookClientConfig().WithCABundle(bundle...)))
	}
	return out
}
