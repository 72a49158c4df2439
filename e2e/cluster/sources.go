package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/stageset/stageset/e2e/process"
)

// keepVariable names the environment variable that keeps a cluster's folder, with its logs, after the tests.
const keepVariable = "E2E_KEEP"

// existing is the cluster of KUBECONFIG. It stays as the tests leave it.
func existing() (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("KUBECONFIG: %w", err)
	}
	return &Cluster{
		Config:      unlimited(config),
		Kubeconfig:  os.Getenv("KUBECONFIG"),
		controllers: true,
		stop:        func() error { return nil },
	}, nil
}

// fromControlPlane starts bin/controlplane, and builds it first if it is missing.
func fromControlPlane(opts options) (*Cluster, error) {
	binary, err := Binary("controlplane")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "cluster-")
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	args := []string{"up", "--dir", dir, "--kubeconfig", kubeconfig, "--stop-on-eof"}
	if opts.nodes {
		kwok, err := Binary("kwok")
		if err != nil {
			return nil, err
		}
		args = append(args, "--with-nodes", "--kwok", kwok)
	}
	if opts.restarts {
		args = append(args, "--restart")
	}
	if opts.trust != "" {
		trust, err := opts.trust.write(dir)
		if err != nil {
			return nil, errors.Join(err, discard(dir))
		}
		args = append(args, "--issuer", "https://"+filepath.Base(dir)+".invalid", "--authentication-config", trust)
	}
	// It lives until the last test of the package is done, longer than the one that asks first.
	up, err := process.Launch(context.Background(), process.Options{
		Path: binary, Args: args, ReadyOutput: "control plane ready",
	})
	if err != nil {
		return nil, errors.Join(err, discard(dir))
	}
	stop := func() error { return errors.Join(up.Stop(), discard(dir)) }
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return &Cluster{
		Config:      unlimited(config),
		Kubeconfig:  kubeconfig,
		AuditLog:    filepath.Join(dir, "audit.log"),
		Dir:         dir,
		controllers: true,
		parent:      up.PID(),
		stop:        stop,
	}, nil
}

// assetsAuditPolicy is the one of bin/controlplane.
const assetsAuditPolicy = `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [
{"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*"]}, {"level": "Metadata"}]}`

// fromAssets starts the etcd and kube-apiserver of a folder.
func fromAssets(assets string, opts options) (*Cluster, error) {
	if opts.nodes {
		return nil, errors.New("these tests need nodes, which the binaries of KUBEBUILDER_ASSETS do not give: unset it")
	}
	dir, err := os.MkdirTemp("", "cluster-")
	if err != nil {
		return nil, err
	}
	policy := filepath.Join(dir, "audit-policy.yaml")
	auditLog := filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(assetsAuditPolicy), 0o600); err != nil {
		return nil, errors.Join(err, discard(dir))
	}
	env := &envtest.Environment{BinaryAssetsDirectory: assets}
	env.ControlPlane.GetAPIServer().Configure().
		Set("authorization-mode", "Node,RBAC").
		Set("audit-policy-file", policy).
		Set("audit-log-path", auditLog).
		Set("audit-log-maxsize", "0")
	config, err := env.Start()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("KUBEBUILDER_ASSETS: %w", err), discard(dir))
	}
	stop := func() error { return errors.Join(env.Stop(), discard(dir)) }
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, env.KubeConfig, 0o600); err != nil {
		return nil, errors.Join(err, stop())
	}
	return &Cluster{Config: unlimited(config), Kubeconfig: kubeconfig, AuditLog: auditLog, Dir: dir, stop: stop}, nil
}

func unlimited(config *rest.Config) *rest.Config {
	config.QPS = -1
	config.Burst = 0
	return config
}

// discard removes a cluster's folder, unless somebody wants to look at it.
func discard(dir string) error {
	if os.Getenv(keepVariable) != "" {
		fmt.Fprintf(os.Stderr, "kept for a look: %s\n", dir)
		return nil
	}
	return os.RemoveAll(dir)
}
