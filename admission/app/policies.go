package app

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/stageset/stageset/admission/audit"
	"github.com/stageset/stageset/admission/webhook"
	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/builtin"
	"github.com/stageset/stageset/policies/store"
)

// rules are what the policy config makes of the policies.
type rules struct {
	// builtIn are the compiled built-in policies.
	builtIn *policies.Set
	// check is what a policy that is about to be stored is checked with.
	check policies.CheckOptions
}

// loadRules reads the policy config and compiles the built-in policies under it.
func loadRules(ctx context.Context, options *Options) (rules, error) {
	config, err := options.Policies.Load(options.Namespace)
	if err != nil {
		return rules{}, err
	}
	set, err := builtin.Compile(ctx, config)
	if err != nil {
		return rules{}, fmt.Errorf("compiling the built-in policies: %w", err)
	}
	check, err := builtin.CheckOptions(config)
	return rules{builtIn: set, check: check}, err
}

// addAudit puts into the manager what evaluates the StageSets that are stored, and writes the statuses of policies.
func addAudit(mgr manager.Manager, p parts, stored *store.Store, measured *audit.Metrics) error {
	return mgr.Add(&audit.Auditor{
		Namespaces:    p.options.Watch.Namespaces,
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
		Authorizer: policies.NewAuthorizer(webhook.Remember(reviewer(mgr.GetClient()), clock.RealClock{})),
	}
}

func reviewer(c client.Client) policies.Review {
	return func(ctx context.Context, review *authorizationv1.SubjectAccessReview) error {
		return c.Create(ctx, review)
	}
}
