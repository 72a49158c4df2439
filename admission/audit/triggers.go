package audit

import (
	"context"
	"fmt"
	"maps"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
)

// watch is a channel that tells that what policies may look at besides StageSets is another: the Namespaces, and whether
// deletions are registered.
func (a *Auditor) watch(ctx context.Context) (<-chan struct{}, error) {
	changed := make(chan struct{}, 1)
	for _, watched := range []struct {
		object client.Object
		same   func(before, after any) bool
	}{
		{&corev1.Namespace{}, sameNamespace},
		{&admissionregistrationv1.ValidatingWebhookConfiguration{}, sameDeletions},
	} {
		informer, err := a.Cache.GetInformer(ctx, watched.object)
		if err == nil {
			_, err = informer.AddEventHandler(handler(changed, watched.same))
		}
		if err != nil {
			return nil, fmt.Errorf("watching %T: %w", watched.object, err)
		}
	}
	return changed, nil
}

// handler leaves a note in changed, unless one is there already.
func handler(changed chan<- struct{}, same func(before, after any) bool) toolscache.ResourceEventHandler {
	tell := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { tell() },
		UpdateFunc: func(before, after any) {
			if !same(before, after) {
				tell()
			}
		},
		DeleteFunc: func(any) { tell() },
	}
}

// sameNamespace tells whether policies select a Namespace as before, and read the same of it.
func sameNamespace(before, after any) bool {
	old, isOld := before.(*corev1.Namespace)
	now, isNow := after.(*corev1.Namespace)
	return isOld && isNow && maps.Equal(old.Labels, now.Labels) && maps.Equal(old.Annotations, now.Annotations)
}

// sameDeletions tells whether a webhook is called for deletions if and only if it was before. A bundle that changes concerns no
// policy.
func sameDeletions(before, after any) bool {
	old, isOld := before.(*admissionregistrationv1.ValidatingWebhookConfiguration)
	now, isNow := after.(*admissionregistrationv1.ValidatingWebhookConfiguration)
	return isOld && isNow && registersDeletions(old) == registersDeletions(now)
}

// deletionsAreRegistered tells whether the API server asks our webhook about deletions of StageSets.
func (a *Auditor) deletionsAreRegistered(ctx context.Context) (bool, error) {
	var configuration admissionregistrationv1.ValidatingWebhookConfiguration
	err := a.Client.Get(ctx, client.ObjectKey{Name: a.Configuration}, &configuration)
	if apierrors.IsNotFound(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("reading ValidatingWebhookConfiguration %s: %w", a.Configuration, err)
	}
	return registersDeletions(&configuration), nil
}

func registersDeletions(configuration *admissionregistrationv1.ValidatingWebhookConfiguration) bool {
	for _, webhook := range configuration.Webhooks {
		for _, rule := range webhook.Rules {
			if among(rule.APIGroups, v1.GroupVersion.Group) && among(rule.Resources, "stagesets") &&
				among(rule.Operations, admissionregistrationv1.Delete) {
				return true
			}
		}
	}
	return false
}

// among tells whether a list of a rule has wanted, or everything.
func among[S ~string](list []S, wanted S) bool {
	return slices.Contains(list, wanted) || slices.Contains(list, "*")
}
