package store

import (
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/stageset/stageset/api/v1alpha1"
)

// Policies are watched, and the objects that they have as parameters, which are ConfigMaps in the release's namespace unless
// the installation grants others.
//
// +kubebuilder:rbac:groups=stages.metio.wtf,resources=stagesetpolicies,verbs=list;watch
// +kubebuilder:rbac:groups="",namespace=stageset-system,resources=configmaps,verbs=get;list;watch

// Permissions are what a Store does with the process's own account; an empty namespace is that of no release. Which
// parameters are found elsewhere than in it depends on what else the installation grants, so that it is asked where they are
// read.
func Permissions(namespace string) []authorizationv1.ResourceAttributes {
	var needed []authorizationv1.ResourceAttributes
	for _, verb := range []string{"list", "watch"} {
		needed = append(needed, authorizationv1.ResourceAttributes{
			Group: v1alpha1.GroupVersion.Group, Resource: "stagesetpolicies", Verb: verb,
		})
	}
	if namespace == "" {
		return needed
	}
	for _, verb := range []string{"get", "list", "watch"} {
		needed = append(needed, authorizationv1.ResourceAttributes{Resource: "configmaps", Namespace: namespace, Verb: verb})
	}
	return needed
}
