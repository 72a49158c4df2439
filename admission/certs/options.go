package certs

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Provider is who makes and renews the certificate.
type Provider string

const (
	// ProviderSecret is this program itself: rotator, Secret and caBundle.
	ProviderSecret Provider = "secret"
	// ProviderFiles is somebody else, who keeps the certificate in files and writes the caBundle.
	ProviderFiles Provider = "files"
)

// Options name what the certificate is for, where it is kept and how long it lasts.
type Options struct {
	// Provider decides which of the options below count.
	Provider Provider
	// Configuration is the name of both the mutating and the validating webhook configuration.
	Configuration string
	// DNSNames are the names that the API server reaches the webhook by; at least one. The certificate is valid for all.
	DNSNames []string
	// Clock says what time it is.
	Clock clock.PassiveClock

	// Secret holds CA and serving certificate of ProviderSecret. It must exist, and may be empty.
	Secret types.NamespacedName
	// Scratch is a directory of this process alone, for ProviderSecret. Nothing of a certificate is written to it.
	Scratch string
	// Lifetime is how long the certificates of ProviderSecret last.
	Lifetime Lifetime

	// Directory holds the files of ProviderFiles: tls.crt, tls.key and, if there is one, ca.crt. They may be symbolic links
	// that change, as those of a mounted Secret do.
	Directory string
}

// Lifetime is how long certificates last. RenewBefore is shorter than Leaf, and Leaf not longer than CA.
type Lifetime struct {
	// CA and Leaf are how long a new CA and a new serving certificate are valid.
	CA, Leaf time.Duration
	// RenewBefore is how long before its end either is replaced.
	RenewBefore time.Duration
}

// maxCheckInterval bounds the time between two looks at whether a certificate is to be renewed.
const maxCheckInterval = 12 * time.Hour

// checkInterval leaves several looks between the moment when a certificate can be renewed and its end.
func (l Lifetime) checkInterval() time.Duration { return min(maxCheckInterval, l.RenewBefore/8) }

// Restore is the command that brings a deleted Secret back. Certificates are then issued anew.
func (o Options) Restore() string {
	return fmt.Sprintf("kubectl create secret generic %s --namespace %s", o.Secret.Name, o.Secret.Namespace)
}
