package app

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/builtin"
	"github.com/stageset/stageset/policies/store"
)

// addPolicies puts into the manager what watches the stored policies beside the built-in ones.
func addPolicies(ctx context.Context, mgr manager.Manager, options *Options) (*store.Store, error) {
	set, err := compilePolicies(ctx, options.PolicyConfig)
	if err != nil {
		return nil, err
	}
	direct, err := dynamic.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("making a client for parameters of policies: %w", err)
	}
	measured, err := store.NewMetrics(metrics.Registry, clock.RealClock{}, store.PointReconcile)
	if err != nil {
		return nil, fmt.Errorf("registering the metrics of policies: %w", err)
	}
	stored := store.New(store.Options{
		BuiltIn: set,
		Cache:   mgr.GetCache(),
		Mapper:  mgr.GetRESTMapper(),
		Dynamic: direct,
		Clock:   clock.RealClock{},
		Logger:  mgr.GetLogger().WithName("policies"),
		Metrics: measured,
	})
	return stored, errors.Join(mgr.Add(stored), mgr.AddReadyzCheck("policies", stored.Ready))
}

// compilePolicies compiles the built-in policies as the config sets them.
func compilePolicies(ctx context.Context, path string) (*policies.Set, error) {
	config, err := policies.LoadConfig(path)
	if err != nil {
		return nil, fmt.Errorf("--policy-config: %w", err)
	}
	set, err := builtin.Compile(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("compiling the built-in policies: %w", err)
	}
	return set, nil
}
