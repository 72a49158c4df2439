package certs

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Setup adds what keeps the Keyring's certificate to a manager whose cache was made with CacheOptions.
func (k *Keyring) Setup(mgr manager.Manager) error {
	k.reader = mgr.GetClient()
	if k.options.Provider == ProviderFiles {
		return k.setupFiles(mgr)
	}
	return k.setupSecret(mgr)
}

// setupSecret adds the rotator, the Keyring's own watch and the writer of the bundles.
func (k *Keyring) setupSecret(mgr manager.Manager) error {
	k.provider = &secretProvider{options: k.options, reader: mgr.GetClient()}
	// The rotator is made for certificates in files, and ends the process when it does not find any. What is in the file does
	// not matter to it: the certificate is served from the Secret.
	if err := os.WriteFile(filepath.Join(k.options.Scratch, keyCertificate), nil, 0o600); err != nil {
		return fmt.Errorf("setting up the certificate rotator: %w", err)
	}
	err := rotator.AddRotator(patientManager{mgr}, &rotator.CertRotator{
		SecretKey:      k.options.Secret,
		CertDir:        k.options.Scratch,
		CAName:         "stageset-admission-ca",
		CAOrganization: "stageset",
		DNSName:        k.options.DNSNames[0],
		ExtraDNSNames:  k.options.DNSNames[1:],

		CaCertDuration:         k.options.Lifetime.CA,
		ServerCertDuration:     k.options.Lifetime.Leaf,
		LookaheadInterval:      k.options.Lifetime.RenewBefore,
		RotationCheckFrequency: k.options.Lifetime.checkInterval(),
		// Closed by the rotator when it has a certificate; Ready is what decides about traffic.
		IsReady: make(chan struct{}),
		// Empty: the rotator would replace the bundle by the newest CA alone, and cut off replicas that serve under the
		// one before.
		Webhooks:              nil,
		RequireLeaderElection: false,
		ControllerName:        "certificate-rotator",
		FieldOwner:            bundleManager,
	})
	if err != nil {
		return fmt.Errorf("setting up the certificate rotator: %w", err)
	}
	if err := complete(watch(mgr, "certificate-serving", false).Watches(&corev1.Secret{}, wake), k); err != nil {
		return err
	}
	bundles := &injector{options: k.options, client: mgr.GetClient()}
	return complete(watch(mgr, "certificate-bundle", true).Watches(&corev1.Secret{}, wake), bundles)
}

// setupFiles adds the watcher of the files and the Keyring's own watch.
func (k *Keyring) setupFiles(mgr manager.Manager) error {
	files, err := newFilesProvider(k.options.Directory)
	if err != nil {
		return err
	}
	k.provider = files
	changed := make(chan event.GenericEvent, 1)
	files.watcher.RegisterCallback(func(tls.Certificate) {
		select {
		case changed <- event.GenericEvent{}:
		default: // one that waits already is enough: it says only that there is something to look at
		}
	})
	if err := mgr.Add(files.watcher); err != nil {
		return fmt.Errorf("watching the certificate's files: %w", err)
	}
	return complete(watch(mgr, "certificate-serving", false).WatchesRawSource(source.Channel(changed, wake)), k)
}

// wake asks for a look at everything, whatever it was that changed.
var wake = handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
	return []reconcile.Request{{}}
})

// watch begins a controller that is woken whenever one of the configurations changes.
func watch(mgr manager.Manager, name string, leaderOnly bool) *builder.Builder {
	return builder.ControllerManagedBy(mgr).Named(name).
		Watches(&admissionregistrationv1.MutatingWebhookConfiguration{}, wake).
		Watches(&admissionregistrationv1.ValidatingWebhookConfiguration{}, wake).
		WithOptions(controller.Options{NeedLeaderElection: &leaderOnly})
}

func complete(b *builder.Builder, target reconcile.Reconciler) error {
	if err := b.Complete(target); err != nil {
		return fmt.Errorf("watching the certificate's objects: %w", err)
	}
	return nil
}
