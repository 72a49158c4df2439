package webhook

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Namespaces are watched, so that admitting a StageSet costs no request, and read once more where the watch lags.
//
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// Permissions are what this package does with the process's own account, one attribute a request.
func Permissions() []authorizationv1.ResourceAttributes {
	var needed []authorizationv1.ResourceAttributes
	for _, verb := range []string{"get", "list", "watch"} {
		needed = append(needed, authorizationv1.ResourceAttributes{Resource: "namespaces", Verb: verb})
	}
	// For rules that ask what the requester may do.
	return append(needed, authorizationv1.ResourceAttributes{
		Group: authorizationv1.GroupName, Resource: "subjectaccessreviews", Verb: "create",
	})
}

// Namespaces finds the Namespace of a StageSet.
type Namespaces struct {
	// Cache is asked first, Live when the cache does not know the namespace: it may be younger than the cache.
	Cache, Live client.Reader
}

// Get returns the Namespace called name. An error means that neither the cache nor the API server would tell; it is for the
// log, and for who asks there is reason.
func (n Namespaces) Get(ctx context.Context, name string) (*corev1.Namespace, error) {
	key := types.NamespacedName{Name: name}
	var namespace corev1.Namespace
	if err := n.Cache.Get(ctx, key, &namespace); err == nil {
		return &namespace, nil
	}
	if err := n.Live.Get(ctx, key, &namespace); err != nil {
		return nil, fmt.Errorf("reading Namespace %s: %w", name, err)
	}
	return &namespace, nil
}

// unread is err, which Get said of the Namespace called name, as whoever writes the StageSet may read it: not with what the
// API server says about our account.
func unread(err error, name string) string {
	if apierrors.IsForbidden(err) {
		return fmt.Sprintf("reading Namespace %s: this installation may not, which whoever runs it has to repair", name)
	}
	return err.Error()
}

// terminating asks the API server whether the Namespace called name is being deleted.
func (n Namespaces) terminating(ctx context.Context, name string) bool {
	var namespace corev1.Namespace
	err := n.Live.Get(ctx, types.NamespacedName{Name: name}, &namespace)
	return err == nil && terminating(&namespace)
}
