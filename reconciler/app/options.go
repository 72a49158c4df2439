// Package app wires stageset-reconciler: flags, manager, and the parts of the reconciler. It holds no logic of its own.
package app

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/stageset/stageset/policies/builtin"
	"github.com/stageset/stageset/process"
	"github.com/stageset/stageset/reconciler/takeover"
)

// Options are the flags of stageset-reconciler; docs/flags.md lists them.
type Options struct {
	Kubeconfig        string
	Name              string
	Namespace         string
	Policies          builtin.Flags
	Watch             process.Watch
	HashKeyFile       string
	ArtifactCacheDir  string
	ArtifactCacheSize int64
	ArtifactHosts     []string
	DialAllow         []string
	InsecureTLS       bool
	Concurrent        int
	ApplyConcurrency  int
	TakeoverManagers  []string
	DefaultInterval   time.Duration
	MaxTeardownWait   time.Duration
	LeaderElect       bool
	MetricsAddress    string
	HealthAddress     string
	Debug             process.Debug
	Logging           process.Logging
	Tracing           process.Tracing
}

// Bounds of spec.interval, which also hold for its default.
const (
	minInterval = 30 * time.Second
	maxInterval = 24 * time.Hour
)

// AddFlags adds the flags to a set, with their defaults.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "",
		"kubeconfig of the cluster; empty uses the in-cluster configuration")
	flags.StringVar(&o.Name, "name", "stageset", "name of the release; the lease is NAME-reconciler")
	flags.StringVar(&o.Namespace, "namespace", os.Getenv("POD_NAMESPACE"),
		"namespace this runs in, where its lease is; defaults to the environment variable POD_NAMESPACE")
	o.Policies.AddFlags(flags)
	o.Watch.AddFlags(flags)
	flags.StringVar(&o.HashKeyFile, "hash-key-file", "",
		"file with at least 32 random bytes, the key of the hashes in inventories; empty makes one that lasts until a restart")
	flags.StringVar(&o.ArtifactCacheDir, "artifact-cache-dir", os.TempDir()+"/stageset-artifacts",
		"directory for fetched artifacts")
	flags.Int64Var(&o.ArtifactCacheSize, "artifact-cache-size", 2<<30,
		"how many bytes of unpacked artifacts are kept")
	flags.StringSliceVar(&o.ArtifactHosts, "artifact-hosts",
		[]string{"*.flux-system.svc", "*.flux-system.svc.cluster.local"},
		"hosts that artifacts may be fetched from (globs, without ports)")
	flags.StringSliceVar(&o.DialAllow, "dial-allow", nil,
		"CIDRs of loopback or link-local addresses that connections to addresses a tenant can name may go to")
	flags.BoolVar(&o.InsecureTLS, "insecure-kubeconfig-tls", false,
		"admit kubeconfigs of tenants with insecure-skip-tls-verify: whoever is on the way can then read and change all of it")
	flags.IntVar(&o.Concurrent, "concurrent", 20,
		"how many StageSets are reconciled at once; a namespace has at most half of what others leave free, and at least one")
	flags.IntVar(&o.ApplyConcurrency, "apply-concurrency", 8, "how many requests of one StageSet run at once")
	flags.StringSliceVar(&o.TakeoverManagers, "takeover-managers",
		[]string{"kubectl", "kubectl-*", "before-first-apply", "kustomize-controller", "stageset-controller"},
		"field managers of earlier tools (globs), whose fields an object's StageSet takes over when it first applies the object")
	flags.DurationVar(&o.DefaultInterval, "default-interval", 10*time.Minute,
		"interval of StageSets that set none; 30s to 24h")
	flags.DurationVar(&o.MaxTeardownWait, "max-teardown-wait", time.Hour,
		"how long a deletion that is forbidden, or on a cluster out of reach, is tried before the StageSet is released and what stays is listed")
	flags.BoolVar(&o.LeaderElect, "leader-elect", true, "only reconcile while holding the lease")
	flags.StringVar(&o.MetricsAddress, "metrics-bind-address", ":8080", "address of the metrics; 0 turns them off")
	flags.StringVar(&o.HealthAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz")
	o.Debug.AddFlags(flags)
	o.Logging.AddFlags(flags)
	o.Tracing.AddFlags(flags)
}

// Validate names every flag whose value cannot be used.
func (o *Options) Validate() error {
	var problems []error
	for _, problem := range validation.IsDNS1123Label(o.Name) {
		problems = append(problems, fmt.Errorf("--name is %q: %s", o.Name, problem))
	}
	if o.LeaderElect && o.Namespace == "" {
		problems = append(problems, errors.New("--namespace or POD_NAMESPACE must name the namespace of the lease, "+
			"or --leader-elect=false"))
	}
	for flag, value := range map[string]int{"--concurrent": o.Concurrent, "--apply-concurrency": o.ApplyConcurrency} {
		if value < 1 {
			problems = append(problems, fmt.Errorf("%s is %d: it must be at least 1", flag, value))
		}
	}
	if _, err := takeover.ParseManagers(o.TakeoverManagers); err != nil {
		problems = append(problems, fmt.Errorf("--takeover-managers: %w", err))
	}
	if o.DefaultInterval < minInterval || o.DefaultInterval > maxInterval {
		problems = append(problems, fmt.Errorf("--default-interval is %s: it must be from %s to %s",
			o.DefaultInterval, minInterval, maxInterval))
	}
	if o.MaxTeardownWait < 0 {
		problems = append(problems, fmt.Errorf("--max-teardown-wait is %s: it must not be negative", o.MaxTeardownWait))
	}
	if o.ArtifactCacheSize < 0 {
		problems = append(problems, fmt.Errorf("--artifact-cache-size is %d: it must not be negative", o.ArtifactCacheSize))
	}
	return errors.Join(append(problems, o.Policies.Validate(), o.Watch.Validate(), o.Debug.Validate(),
		o.Logging.Validate(), o.Tracing.Validate())...)
}

// leaseName is the name of the Lease: that of another release in the same namespace is another.
func (o *Options) leaseName() string { return o.Name + "-reconciler" }
