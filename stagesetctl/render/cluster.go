// Package render finds out what a StageSet applies, and what its accounts need for that: it reads sources and renders stages
// with the code of the reconciler, as whoever runs the command. It never writes to a cluster.
package render

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	v1 "github.com/stageset/stageset/api/v1"
)

// Cluster is a cluster as whoever the configuration is of sees it.
type Cluster struct {
	config  *rest.Config
	objects dynamic.Interface
	kinds   meta.RESTMapper
}

// NewCluster prepares reading a cluster; it sends nothing.
func NewCluster(config *rest.Config) (*Cluster, error) {
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Cluster{
		config: config, objects: objects, kinds: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(kinds)),
	}, nil
}

// StageSet reads a StageSet.
func (c *Cluster) StageSet(ctx context.Context, namespace, name string) (*v1.StageSet, error) {
	live, err := c.Get(ctx, v1.GroupVersion.WithKind("StageSet"), namespace, name)
	if err != nil {
		return nil, fmt.Errorf("the StageSet: %w", err)
	}
	set := &v1.StageSet{}
	return set, runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, set)
}

// Get reads one object.
func (c *Cluster) Get(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string) (
	*unstructured.Unstructured, error,
) {
	resource, err := c.resource(gvk, namespace)
	if err != nil {
		return nil, err
	}
	return resource.Get(ctx, name, metav1.GetOptions{})
}

// List visits all objects of a kind in a namespace.
func (c *Cluster) List(
	ctx context.Context, gvk schema.GroupVersionKind, namespace string, visit func(*unstructured.Unstructured),
) error {
	resource, err := c.resource(gvk, namespace)
	if err != nil {
		return err
	}
	list, err := resource.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		visit(&list.Items[i])
	}
	return nil
}

// Identity is whom the cluster is read as, as messages name it.
func (c *Cluster) Identity() string { return "whoever the kubeconfig is of" }

func (c *Cluster) resource(gvk schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
	mapping, err := c.kinds.RESTMapping(gvk.GroupKind(), gvk.Version)
	switch {
	case err != nil:
		return nil, err
	case mapping.Scope.Name() == meta.RESTScopeNameRoot:
		return c.objects.Resource(mapping.Resource), nil
	}
	return c.objects.Resource(mapping.Resource).Namespace(namespace), nil
}

// lacksNamespace is true when there is no namespace of the name, as far as that may be known.
func (c *Cluster) lacksNamespace(ctx context.Context, name string) bool {
	_, err := c.Get(ctx, schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, "", name)
	return apierrors.IsNotFound(err)
}
