package store

import (
	"errors"
	"fmt"

	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/stageset/stageset/policies"
)

// Install makes the Store of a program that has mgr: mgr runs it, and is not ready before it is. The built-in policies hold
// whatever is stored. Namespaces are those whose StageSets the program is about; none is all of them. The scheme of mgr must
// know StageSetPolicies.
func Install(mgr manager.Manager, builtIn *policies.Set, measured *Metrics, namespaces []string) (*Store, error) {
	direct, err := dynamic.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("making a client for parameters of policies: %w", err)
	}
	made := New(Options{
		BuiltIn: builtIn, Namespaces: namespaces,
		Cache:   mgr.GetCache(),
		Mapper:  mgr.GetRESTMapper(),
		Dynamic: direct,
		Clock:   clock.RealClock{},
		Logger:  mgr.GetLogger().WithName("policies"),
		Metrics: measured,
	})
	return made, errors.Join(mgr.Add(made), mgr.AddReadyzCheck("policies", made.Ready))
}
