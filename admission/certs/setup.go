package certs

import (
	"context"
	"fmt"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// The rotator lists and watches every Secret of its namespace; it cannot be told to look at one. Everything else is by
// name. The names are those of a release called stageset in the namespace stageset-system; the chart puts in its own.
//
// +kubebuilder:rbac:groups="",namespace=stageset-system,resources=secrets,verbs=list;watch
// +kubebuilder:rbac:groups="",namespace=stageset-system,resources=secrets,resourceNames=stageset-admission-tls,verbs=get;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations;validatingwebhookconfigurations,resourceNames=stageset-admission,verbs=list;watch;patch

// Permissions are what this package does with the process's own account, one attribute a request.
func Permissions(options Options) []authorizationv1.ResourceAttributes {
	secret := authorizationv1.ResourceAttributes{Resource: "secrets", Namespace: options.Secret.Namespace}
	var needed []authorizationv1.ResourceAttributes
	for _, verb := range []string{"list", "watch"} {
		attributes := secret
		attributes.Verb = verb
		needed = append(needed, attributes)
	}
	for _, verb := range []string{"get", "update"} {
		attributes := secret
		attributes.Verb, attributes.Name = verb, options.Secret.Name
		needed = append(needed, attributes)
	}
	for _, resource := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
		for _, verb := range []string{"list", "watch", "patch"} {
			needed = append(needed, authorizationv1.ResourceAttributes{
				Group: admissionregistrationv1.GroupName, Resource: resource, Name: options.Configuration, Verb: verb,
			})
		}
	}
	return needed
}

// CacheOptions limit the manager's cache to the one Secret and the two webhook configurations, which is also all that the
// RBAC rules let it list.
func CacheOptions(options Options) map[client.Object]cache.ByObject {
	configuration := cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", options.Configuration)}
	secret := cache.Config{FieldSelector: fields.OneTermEqualSelector("metadata.name", options.Secret.Name)}
	return map[client.Object]cache.ByObject{
		&corev1.Secret{}: {Namespaces: map[string]cache.Config{options.Secret.Namespace: secret}},
		&admissionregistrationv1.MutatingWebhookConfiguration{}:   configuration,
		&admissionregistrationv1.ValidatingWebhookConfiguration{}: configuration,
	}
}

// Setup adds the rotator, the Keyring's own watch and the writer of the bundles to a manager whose cache was made with
// CacheOptions.
func (k *Keyring) Setup(mgr manager.Manager) error {
	k.reader = mgr.GetClient()
	err := rotator.AddRotator(mgr, &rotator.CertRotator{
		SecretKey:      k.options.Secret,
		CertDir:        k.options.Directory,
		CAName:         "stageset-admission-ca",
		CAOrganization: "stageset",
		DNSName:        k.options.DNSNames[0],
		ExtraDNSNames:  k.options.DNSNames[1:],
		// Closed by the rotator when it has a certificate; Ready is what decides about traffic.
		IsReady: make(chan struct{}),
		// Empty: the rotator would replace the bundle by the newest CA alone, and cut off replicas that serve under the
		// one before.
		Webhooks:              nil,
		RequireLeaderElection: false,
		ControllerName:        "certificate-rotator",
		FieldOwner:            bundleManager,
	})
	if err != nil {
		return fmt.Errorf("setting up the certificate rotator: %w", err)
	}
	if err := watch(mgr, "certificate-serving", false, k); err != nil {
		return err
	}
	return watch(mgr, "certificate-bundle", true, &injector{options: k.options, client: mgr.GetClient()})
}

// watch wakes a reconciler, always for the same request, whenever the Secret or one of the configurations changes.
func watch(mgr manager.Manager, name string, leaderOnly bool, target reconcile.Reconciler) error {
	wake := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	err := builder.ControllerManagedBy(mgr).Named(name).
		Watches(&corev1.Secret{}, wake).
		Watches(&admissionregistrationv1.MutatingWebhookConfiguration{}, wake).
		Watches(&admissionregistrationv1.ValidatingWebhookConfiguration{}, wake).
		WithOptions(controller.Options{NeedLeaderElection: &leaderOnly}).
		Complete(target)
	if err != nil {
		return fmt.Errorf("watching the certificate's objects for %s: %w", name, err)
	}
	return nil
}
