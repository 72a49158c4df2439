package app

import (
	"context"
	"errors"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/stageset/stageset/admission/audit"
	"github.com/stageset/stageset/admission/webhook"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/builtin"
	"github.com/stageset/stageset/policies/store"
)

// Policies are watched, and the objects that they have as parameters, which are ConfigMaps in the release's namespace unless
// the installation allows others.
//
// +kubebuilder:rbac:groups=stages.metio.wtf,resources=stagesetpolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups="",namespace=stageset-system,resources=configmaps,verbs=get;list;watch

// rules are what the policy config makes of the policies.
type rules struct {
	// builtIn are the compiled built-in policies.
	builtIn *policies.Set
	// check is what a policy that is about to be stored is checked with.
	check policies.CheckOptions
}

// compilePolicies reads the policy config and compiles the built-in policies under it.
func compilePolicies(ctx context.Context, options *Options) (rules, error) {
	config, err := policies.LoadConfig(options.PolicyConfig)
	if err != nil {
		return rules{}, fmt.Errorf("--policy-config: %w", err)
	}
	set, err := builtin.Compile(ctx, config)
	if err != nil {
		return rules{}, fmt.Errorf("compiling the built-in policies: %w", err)
	}
	check, err := builtin.CheckOptions(config)
	if err != nil {
		return rules{}, fmt.Errorf("listing the built-in policies: %w", err)
	}
	return rules{builtIn: set, check: check}, nil
}

// addPolicies puts into the manager what watches the stored policies beside the built-in ones.
func addPolicies(mgr manager.Manager, builtIn *policies.Set) (*store.Store, error) {
	direct, err := dynamic.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("making a client for parameters of policies: %w", err)
	}
	measured, err := store.NewMetrics(metrics.Registry, clock.RealClock{}, store.PointAudit)
	if err != nil {
		return nil, fmt.Errorf("registering the metrics of policies: %w", err)
	}
	stored := store.New(store.Options{
		BuiltIn: builtIn,
		Cache:   mgr.GetCache(),
		Mapper:  mgr.GetRESTMapper(),
		Dynamic: direct,
		Clock:   clock.RealClock{},
		Logger:  mgr.GetLogger().WithName("policies"),
		Metrics: measured,
	})
	return stored, errors.Join(mgr.Add(stored), mgr.AddReadyzCheck("policies", stored.Ready))
}

// addAudit puts into the manager what evaluates the StageSets that are stored, and writes the statuses of policies.
func addAudit(mgr manager.Manager, p parts, stored *store.Store) error {
	measured, err := audit.NewMetrics(metrics.Registry)
	if err != nil {
		return fmt.Errorf("registering the metrics of the audit: %w", err)
	}
	return mgr.Add(&audit.Auditor{
		Installation:  p.options.Namespace + "/" + p.options.Name,
		Store:         stored,
		Params:        stored,
		Client:        mgr.GetClient(),
		Live:          mgr.GetAPIReader(),
		Cache:         mgr.GetCache(),
		Configuration: p.options.objectName(),
		Check:         p.rules.check,
		Metrics:       measured,
		Clock:         clock.RealClock{},
	})
}

// stageSets admits StageSets by what is stored, and asks the API server what requesters may do.
func stageSets(mgr manager.Manager, stored *store.Store) *webhook.StageSets {
	return &webhook.StageSets{
		Policies: func() webhook.Policies {
			if set := stored.Set(); set != nil {
				return set
			}
			return nil
		},
		Namespaces: webhook.Namespaces{Cache: mgr.GetClient(), Live: mgr.GetAPIReader()},
		Authorizer: policies.NewAuthorizer(reviewer(mgr.GetClient())),
	}
}

func reviewer(c client.Client) policies.Review {
	return func(ctx context.Context, review *authorizationv1.SubjectAccessReview) error {
		return c.Create(ctx, review)
	}
}
