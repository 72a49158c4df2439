package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/process"
	"github.com/stageset/stageset/reconciler/build"
	"github.com/stageset/stageset/reconciler/controller"
	"github.com/stageset/stageset/reconciler/dial"
	"github.com/stageset/stageset/reconciler/inventory"
	"github.com/stageset/stageset/reconciler/inventory/store"
	"github.com/stageset/stageset/reconciler/ownership"
	"github.com/stageset/stageset/reconciler/pipeline"
	"github.com/stageset/stageset/reconciler/rules"
	"github.com/stageset/stageset/reconciler/source"
	"github.com/stageset/stageset/reconciler/tenant"
)

// program is the name of the binary: its user agent, and who its events are from.
const program = "stageset-reconciler"

// gcPercent lets the heap grow by a quarter before it is collected, where Go would let it double: most of what a reconciler of
// many StageSets holds is idle, and passes are short, so the memory is worth more than the processor time.
const gcPercent = 25

// renderCacheSize bounds the manifests that are kept between passes, in bytes.
const renderCacheSize = 64 << 20

// The lease ends this long after its holder was killed, and whoever waits for it asks after the retry period, or up to 2.2 times
// that. It has to see the last renewal and the end, so that it leads 4.4 retry periods after the lease at the latest; and 2.2
// after one that ends in order, and gives the lease up. It is short for that: the writes are few and tiny for an API server.
//
// A holder that gets no answers has ended before: a retry period after its last renewal it begins to try for the renew deadline,
// and then, still leading, to give the lease up, for as long again at most. Other clusters may answer it all the while.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 7 * time.Second
	retryPeriod   = 400 * time.Millisecond
)

// requestTimeout bounds a request of the reconciler's own, as package tenant bounds those of tenants: a little more than the
// API server's own limit. A worker must not wait for an answer that never comes.
const requestTimeout = 65 * time.Second

// Main parses the arguments, runs until ctx is done or something fails, and returns the exit code of the process.
func Main(ctx context.Context, arguments []string, stderr io.Writer) int {
	options := &Options{}
	if code, run := process.Parse(program, arguments, options, stderr); !run {
		return code
	}
	process.CollectGarbage(gcPercent)
	logger := options.Logging.Start(stderr)
	if err := Run(ctx, options, logger); err != nil {
		logger.Error(err, program+" failed")
		return process.ExitFailure
	}
	return process.ExitOK
}

// Run reconciles until ctx is done. Options must be valid.
func Run(ctx context.Context, options *Options, logger logr.Logger) error {
	config, err := process.RESTConfig(options.Kubeconfig, program)
	if err != nil {
		return err
	}
	if err := process.MeasureRequests(config); err != nil {
		return err
	}
	if err := process.CheckPermissions(ctx, config, permissions(options)); err != nil {
		return err
	}
	measured, err := NewMetrics(metrics.Registry)
	if err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	mgr, err := newManager(config, options, logger)
	if err != nil {
		return err
	}
	tracing, flush, err := options.Tracing.Start(ctx, program, logger)
	if err != nil {
		return err
	}
	defer flush()
	waits := controller.NewWaits()
	named, err := newConnections(options, waits, measured)
	if err != nil {
		return err
	}
	defer func() { _ = named.fetcher.Close() }()
	reconciler, err := assemble(ctx, mgr, options, named)
	if err != nil {
		return err
	}
	reconciler.Tracing = tracing
	if err := reconciler.SetupWithManager(ctx, mgr, workers(options.Concurrent)); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(v1.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(corev1.AddToScheme(scheme))
	utilruntime.Must(sourcev1.AddToScheme(scheme))
	return scheme
}

func newManager(config *rest.Config, options *Options, logger logr.Logger) (manager.Manager, error) {
	bounded, err := boundedClient(config)
	if err != nil {
		return nil, err
	}
	lease, renew, retry := leaseDuration, renewDeadline, retryPeriod
	mgr, err := manager.New(config, manager.Options{
		Scheme: newScheme(),
		Client: client.Options{HTTPClient: bounded},
		Logger: logger,
		Cache: cache.Options{
			DefaultTransform: controller.Lean, DefaultNamespaces: options.Watch.Cache(),
		},
		Metrics:                 metricsserver.Options{BindAddress: options.MetricsAddress},
		HealthProbeBindAddress:  options.HealthAddress,
		PprofBindAddress:        options.Debug.Address,
		LeaderElection:          options.LeaderElect,
		LeaderElectionID:        options.leaseName(),
		LeaderElectionNamespace: options.Namespace,
		// Given up when all passes have ended, which they do at once: requests end with their context, and what builds for longer
		// than the manager waits has no request to make any more. An API server may still carry out the last one, as it may
		// after a crash; the successor compares before it applies.
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &lease,
		RenewDeadline:                 &renew,
		RetryPeriod:                   &retry,
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	// Who is ready can lead at once: a roll-out ends the replica that leads for one that is.
	cached := &process.CacheCheck{}
	err = errors.Join(mgr.Add(cached), mgr.AddReadyzCheck("caches", cached.Ready), mgr.AddHealthzCheck("ping", healthz.Ping))
	if err != nil {
		return nil, fmt.Errorf("adding the probes: %w", err)
	}
	return mgr, nil
}

// boundedClient is for everything but watches, which have no end.
func boundedClient(config *rest.Config) (*http.Client, error) {
	config = rest.CopyConfig(config)
	config.Timeout = requestTimeout
	bounded, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making the client: %w", err)
	}
	return bounded, nil
}

// newLive is a reader that sees past the cache.
func newLive(mgr manager.Manager) (client.Reader, error) {
	bounded, err := boundedClient(mgr.GetConfig())
	if err != nil {
		return nil, err
	}
	return client.New(mgr.GetConfig(), client.Options{
		HTTPClient: bounded, Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
	})
}

// connections are those to what tenants name, and what measures them.
type connections struct {
	measured *Metrics
	dialer   *dial.Dialer
	resolver *source.Resolver
	fetcher  *source.Fetcher
	waits    controller.Waits
}

func newConnections(options *Options, waits controller.Waits, measured *Metrics) (connections, error) {
	allow, err := dial.ParseAllow(options.DialAllow)
	if err != nil {
		return connections{}, fmt.Errorf("--dial-allow: %w", err)
	}
	hosts, err := source.ParseHosts(options.ArtifactHosts)
	if err != nil {
		return connections{}, fmt.Errorf("--artifact-hosts: %w", err)
	}
	made := connections{measured: measured, dialer: dial.New(allow), resolver: source.NewResolver(hosts), waits: waits}
	made.fetcher, err = source.NewFetcher(source.FetcherOptions{
		Dir:       options.ArtifactCacheDir,
		Transport: made.dialer.Transport(),
		Hosts:     hosts,
		CacheSize: options.ArtifactCacheSize,
		Metrics:   measured.artifacts,
		Wake:      waits.Over,
	})
	return made, err
}

// assemble makes the reconciler of its parts.
func assemble(
	ctx context.Context, mgr manager.Manager, options *Options, named connections,
) (*controller.Reconciler, error) {
	config, err := options.Policies.Load(options.Namespace)
	if err != nil {
		return nil, err
	}
	stored, err := addPolicies(ctx, mgr, config, named.measured.policies, options.Watch.Namespaces)
	if err != nil {
		return nil, err
	}
	hasher, err := inventory.NewHasher(options.HashKeyFile)
	if err != nil {
		return nil, fmt.Errorf("--hash-key-file: %w", err)
	}
	tenants, err := tenant.New(tenant.Options{
		Config: mgr.GetConfig(), Own: config.ControllerIdentity, Dialer: named.dialer, InsecureTLS: options.InsecureTLS,
		Metrics: named.measured.tokens, Wake: named.waits.Over,
	})
	if err != nil {
		return nil, err
	}
	live, err := newLive(mgr)
	if err != nil {
		return nil, err
	}
	inventories := store.New(mgr.GetClient())
	return &controller.Reconciler{
		Client:   mgr.GetClient(),
		Live:     live,
		Store:    inventories,
		Policies: rules.New(stored.Set),
		Pipeline: &pipeline.Pipeline{
			Tenants:     tenants,
			Resolver:    named.resolver,
			Fetcher:     named.fetcher,
			Builds:      build.NewCache(renderCacheSize),
			Hasher:      hasher,
			Applier:     ownership.Applier{Claims: inventories, Earlier: options.TakeoverManagers},
			Graph:       controller.Graph{StageSets: mgr.GetClient(), Namespaces: options.Watch.Namespaces},
			Concurrency: options.ApplyConcurrency,
			Step:        controller.Steps{Clock: clock.RealClock{}}.Begin,
		},
		PolicyChanges: stored,
		Waits:         named.waits,

		Events: mgr.GetEventRecorder(program),
		Clock:  clock.RealClock{},
		Options: controller.Options{
			DefaultInterval:  options.DefaultInterval,
			MaxTeardownWait:  options.MaxTeardownWait,
			ApplyConcurrency: options.ApplyConcurrency,
			Workers:          options.Concurrent,
			Home:             options.Namespace,
			Namespaces:       options.Watch.Namespaces,
		},
	}, nil
}
