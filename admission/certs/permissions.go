package certs

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The rotator lists and watches every Secret of its namespace; it cannot be told to look at one. Everything else is by
// name. The names are those of a release called stageset in the namespace stageset-system; the chart puts in its own.
//
// +kubebuilder:rbac:groups="",namespace=stageset-system,resources=secrets,verbs=list;watch
// +kubebuilder:rbac:groups="",namespace=stageset-system,resources=secrets,resourceNames=stageset-admission-tls,verbs=get;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations;validatingwebhookconfigurations,resourceNames=stageset-admission,verbs=list;watch;patch

// Permissions are what this package does with the process's own account, one attribute a request. ProviderFiles needs no
// Secret, and only reads the webhook configurations.
func Permissions(options Options) []authorizationv1.ResourceAttributes {
	verbs := []string{"list", "watch"}
	var needed []authorizationv1.ResourceAttributes
	if options.Provider == ProviderSecret {
		secret := authorizationv1.ResourceAttributes{Resource: "secrets", Namespace: options.Secret.Namespace}
		needed = append(needed, grants(secret, "list", "watch")...)
		secret.Name = options.Secret.Name
		needed = append(needed, grants(secret, "get", "update")...)
		verbs = append(verbs, "patch")
	}
	for _, resource := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
		needed = append(needed, grants(authorizationv1.ResourceAttributes{
			Group: admissionregistrationv1.GroupName, Resource: resource, Name: options.Configuration,
		}, verbs...)...)
	}
	return needed
}

// grants is the permission for each of the verbs.
func grants(on authorizationv1.ResourceAttributes, verbs ...string) []authorizationv1.ResourceAttributes {
	granted := make([]authorizationv1.ResourceAttributes, 0, len(verbs))
	for _, verb := range verbs {
		on.Verb = verb
		granted = append(granted, on)
	}
	return granted
}

// CacheOptions limit the manager's cache to the one Secret, if there is one, and the two webhook configurations, which is
// also all that the RBAC rules let it list.
func CacheOptions(options Options) map[client.Object]cache.ByObject {
	configuration := cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", options.Configuration)}
	objects := map[client.Object]cache.ByObject{
		&admissionregistrationv1.MutatingWebhookConfiguration{}:   configuration,
		&admissionregistrationv1.ValidatingWebhookConfiguration{}: configuration,
	}
	if options.Provider == ProviderSecret {
		secret := cache.Config{FieldSelector: fields.OneTermEqualSelector("metadata.name", options.Secret.Name)}
		objects[&corev1.Secret{}] = cache.ByObject{Namespaces: map[string]cache.Config{options.Secret.Namespace: secret}}
	}
	return objects
}
