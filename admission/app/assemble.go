package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/stageset/stageset/admission/certs"
	"github.com/stageset/stageset/admission/webhook"
	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/policies/store"
	"github.com/stageset/stageset/process"
)

// The lease is long, because losing it ends the process, and what the leader does is never urgent: a slow API server must
// not take a replica down that serves well. A leader that ends in order gives the lease up at once.
const (
	leaseDuration = 45 * time.Second
	renewDeadline = 30 * time.Second
	retryPeriod   = 5 * time.Second
)

// parts are what the manager is made of.
type parts struct {
	options *Options
	logger  logr.Logger
	tracing trace.TracerProvider
	ending  *drain
	rules   rules
	keyring *certs.Keyring
}

// assemble makes the manager and puts everything into it.
func assemble(config *rest.Config, p parts) (manager.Manager, error) {
	mgr, err := manager.New(config, managerOptions(p))
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	if err := p.keyring.Setup(mgr); err != nil {
		return nil, err
	}
	measured, err := NewMetrics(metrics.Registry, p.keyring)
	if err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	stored, err := store.Install(mgr, p.rules.builtIn, measured.policies, p.options.Watch.Namespaces)
	if err != nil {
		return nil, err
	}
	if err := addAudit(mgr, p, stored, measured.audit); err != nil {
		return nil, err
	}
	server := &webhook.Server{
		StageSets:        stageSets(mgr, stored),
		StageSetPolicies: &webhook.StageSetPolicies{Options: p.rules.check},
		MaxInFlight:      p.options.MaxInFlight,
		Draining:         p.ending.Begun,
		Metrics:          measured.webhook,
		Tracing:          p.tracing,
	}
	server.Register(mgr.GetWebhookServer())
	return mgr, addChecks(mgr, p)
}

func managerOptions(p parts) manager.Options {
	lease, renew, retry := leaseDuration, renewDeadline, retryPeriod
	objects := certs.CacheOptions(certsOptions(p.options, ""))
	return manager.Options{
		Scheme: newScheme(),
		Logger: p.logger,
		Cache:  cache.Options{ByObject: objects, DefaultTransform: cache.TransformStripManagedFields()},
		WebhookServer: ctrlwebhook.NewServer(ctrlwebhook.Options{
			Host: p.options.WebhookHost, Port: p.options.WebhookPort, TLSOpts: []func(*tls.Config){p.secure},
		}),
		HealthProbeBindAddress: p.options.HealthProbeBindAddress,
		PprofBindAddress:       p.options.Debug.Address,
		Metrics:                metricsserver.Options{BindAddress: p.options.MetricsBindAddress},

		LeaderElection:                p.options.LeaderElect,
		LeaderElectionID:              p.options.objectName(),
		LeaderElectionNamespace:       p.options.Namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &lease,
		RenewDeadline:                 &renew,
		RetryPeriod:                   &retry,
	}
}

// secure sets up TLS. API servers speak HTTP/1.1 to webhooks, and 1.3 is what every API server that knows our webhook
// configurations speaks.
func (p parts) secure(config *tls.Config) {
	config.MinVersion = tls.VersionTLS13
	config.NextProtos = []string{"http/1.1"}
	config.GetCertificate = p.keyring.GetCertificate
}

// addChecks adds what liveness and readiness are made of, besides the policies.
func addChecks(mgr manager.Manager, p parts) error {
	cached := &process.CacheCheck{}
	// Without a controller that watches them, nobody else would have the cache begin with Namespaces.
	_, err := mgr.GetCache().GetInformer(context.Background(), &corev1.Namespace{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching Namespaces: %w", err)
	}
	return errors.Join(
		mgr.Add(cached),
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("caches", cached.Ready),
		mgr.AddReadyzCheck("certificate", p.keyring.Ready),
		mgr.AddReadyzCheck("serving", mgr.GetWebhookServer().StartedChecker()),
		mgr.AddReadyzCheck("stopping", p.ending.Ready),
	)
}

// certsOptions are the options of the certificate, with a directory of the process's own.
func certsOptions(options *Options, scratch string) certs.Options {
	return certs.Options{
		Provider:      certs.Provider(options.CertProvider),
		Configuration: options.objectName(),
		DNSNames:      options.CertDNSNames,
		Clock:         clock.RealClock{},
		Secret:        types.NamespacedName{Namespace: options.Namespace, Name: options.secretName()},
		Scratch:       scratch,
		Lifetime:      options.CertLifetime,
		Directory:     options.CertDir,
	}
}

// newScheme knows exactly what the program reads and writes.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, admissionregistrationv1.AddToScheme, coordinationv1.AddToScheme, authorizationv1.AddToScheme,
		v1alpha1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}
