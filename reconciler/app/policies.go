package app

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/stageset/stageset/policies"
	"github.com/stageset/stageset/policies/builtin"
	"github.com/stageset/stageset/policies/store"
)

// addPolicies puts into the manager what watches the stored policies beside the built-in ones.
func addPolicies(
	ctx context.Context, mgr manager.Manager, config policies.Config, measured *store.Metrics, namespaces []string,
) (*store.Store, error) {
	set, err := builtin.Compile(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("compiling the built-in policies: %w", err)
	}
	return store.Install(mgr, set, measured, namespaces)
}
