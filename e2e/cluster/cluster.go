// Package cluster gives the tests of one package a real Kubernetes API: real RBAC, real tokens, real managed fields.
// There is one for the whole package, started by the first test that asks for it.
//
// It never imitates the apiserver, never uses a cluster that it was not told to, and never leaves a process behind.
//
// The cluster is, in this order:
//   - the one that KUBECONFIG names, used as its current user, who must be an administrator;
//   - the etcd and kube-apiserver in the folder that KUBEBUILDER_ASSETS names, without controllers;
//   - bin/controlplane of this repository, which is built if it is missing.
package cluster

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cluster is a Kubernetes API that tests may fill as they like, in namespaces of their own.
type Cluster struct {
	// Config is the administrator's, without a client-side limit.
	Config *rest.Config
	// Kubeconfig is the file that Config is from.
	Kubeconfig string
	// AuditLog is the file of audit events, empty where there is none (KUBECONFIG). See Audit.
	AuditLog string
	// Dir holds the data and logs, empty where they are elsewhere (KUBECONFIG).
	Dir string

	client      client.WithWatch
	controllers bool // whether something makes service accounts, deletes namespaces, collects garbage
	parent      int  // the process whose children are the components, 0 where there are none of ours
	stop        func() error
}

// Option changes what a package's cluster has.
type Option func(*options)

type options struct {
	nodes    bool
	restarts bool
	atEnd    []func() error
	trust    trust
}

// WithNodes adds a scheduler and nodes that pretend to run Pods, so that Deployments become available. How to make a
// Pod slow: see ReadyAfter and NotReady.
func WithNodes() Option {
	return func(o *options) { o.nodes = true }
}

// WithRestarts has components of the control plane start again after KillComponent.
func WithRestarts() Option {
	return func(o *options) { o.restarts = true }
}

// AtEnd has Run call f after the last test, while the cluster still runs, if a test asked for it. If f returns an error,
// the tests have failed.
func AtEnd(f func() error) Option {
	return func(o *options) { o.atEnd = append(o.atEnd, f) }
}

// Marks for Pods of a cluster WithNodes. They belong into metadata of the Pod (template).
const (
	// ReadyAfter is an annotation: the Pod becomes Ready only that long after it was scheduled ("10s").
	ReadyAfter = "e2e.metio.wtf/ready-after"
	// NotReady is a label: the Pod does not become Ready while it has the value "true". See ReleasePods.
	NotReady = "e2e.metio.wtf/not-ready"
)

// fieldManager writes everything that tests write through this package.
const fieldManager = "e2e"

var shared struct {
	once    sync.Once
	options options
	cluster *Cluster
	err     error
}

// Run runs the tests of a package and then stops its cluster, if a test asked for one. It returns the exit code:
//
//	func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }
func Run(m *testing.M, opts ...Option) int {
	for _, option := range opts {
		option(&shared.options)
	}
	code := m.Run()
	if shared.cluster == nil {
		return code
	}
	for _, f := range shared.options.atEnd {
		if err := f(); err != nil {
			fmt.Fprintf(os.Stderr, "after the tests: %v\n", err)
			code = max(code, 1)
		}
	}
	if err := shared.cluster.stop(); err != nil {
		fmt.Fprintf(os.Stderr, "stopping the cluster: %v\n", err)
		code = max(code, 1)
	}
	return code
}

// Shared is the cluster of the package.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	shared.once.Do(func() { shared.cluster, shared.err = start(shared.options) })
	if shared.err != nil {
		t.Fatalf("no cluster: %v", shared.err)
	}
	return shared.cluster
}

// Another is a further cluster, of bin/controlplane and without nodes, until the end of the test.
func Another(t testing.TB, opts ...Option) *Cluster {
	t.Helper()
	var chosen options
	for _, option := range opts {
		option(&chosen)
	}
	c, err := connected(fromControlPlane(chosen))
	if err != nil {
		t.Fatalf("no other cluster: %v", err)
	}
	t.Cleanup(func() {
		if err := c.stop(); err != nil {
			t.Errorf("stopping the other cluster: %v", err)
		}
	})
	return c
}

func start(opts options) (*Cluster, error) { return connected(choose(opts)) }

// connected is a cluster with a client.
func connected(c *Cluster, err error) (*Cluster, error) {
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	c.client, err = client.NewWithWatch(c.Config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

func choose(opts options) (*Cluster, error) {
	if os.Getenv("KUBECONFIG") != "" {
		return existing()
	}
	if assets := os.Getenv("KUBEBUILDER_ASSETS"); assets != "" {
		return fromAssets(assets, opts)
	}
	return fromControlPlane(opts)
}
