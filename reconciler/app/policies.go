package app

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/stageset/stageset/policies/builtin"
	"github.com/stageset/stageset/policies/store"
)

// addPolicies puts into the manager what watches the stored policies beside the built-in ones.
func addPolicies(ctx context.Context, mgr manager.Manager, options *Options) (*store.Store, error) {
	set, _, err := builtin.Load(ctx, options.PolicyConfig, options.Namespace)
	if err != nil {
		return nil, err
	}
	return store.Install(mgr, set, store.PointReconcile)
}
