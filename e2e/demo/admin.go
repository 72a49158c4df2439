package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
)

const (
	// owner is the field manager of what an administrator would apply, and the value of labelOwner on all of it.
	owner      = "stageset-demo"
	labelOwner = "app.kubernetes.io/managed-by"
)

// admin does what the administrator of a cluster would, and remembers it.
type admin struct {
	client.WithWatch
	config  *rest.Config
	applied []*unstructured.Unstructured
}

func newAdmin(kubeconfig string) (*admin, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	made, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	return &admin{WithWatch: made, config: config}, nil
}

// describe is the version and the address of the cluster.
func (a *admin) describe() (string, error) {
	asking, err := discovery.NewDiscoveryClientForConfig(a.config)
	if err != nil {
		return "", err
	}
	version, err := asking.ServerVersion()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("Kubernetes %s at %s", version.GitVersion, a.config.Host), nil
}

// local says whether the address of the cluster is one of loopback.
func (a *admin) local() bool {
	address, err := url.Parse(a.config.Host)
	if err != nil {
		return false
	}
	host := address.Hostname()
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// apply server-side applies every document, in order, with a label that says who did.
func (a *admin) apply(ctx context.Context, manifests []byte) error {
	objects, err := parse(manifests)
	if err != nil {
		return err
	}
	for _, object := range objects {
		labels := object.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[labelOwner] = owner
		object.SetLabels(labels)
		err := a.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()),
			client.FieldOwner(owner), client.ForceOwnership)
		if err != nil {
			return fmt.Errorf("applying %s: %w", describe(object), err)
		}
		if !slices.ContainsFunc(a.applied, func(o *unstructured.Unstructured) bool { return describe(o) == describe(object) }) {
			a.applied = append(a.applied, object)
		}
	}
	return nil
}

// parse splits YAML into its documents and leaves out empty ones.
func parse(manifests []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifests)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			return nil, err
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// describe names an object for people: "ServiceAccount team-a/deployer".
func describe(object client.Object) string {
	name := strings.TrimPrefix(client.ObjectKeyFromObject(object).String(), "/")
	return object.GetObjectKind().GroupVersionKind().Kind + " " + name
}

// reference is an object with nothing but its identity; the namespace of a cluster-scoped one is empty.
func reference(kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

// belongsToOthers says which of the objects exist and were not made by this program.
func (a *admin) belongsToOthers(ctx context.Context, objects ...*unstructured.Unstructured) ([]string, error) {
	var others []string
	for _, object := range objects {
		err := a.Get(ctx, client.ObjectKeyFromObject(object), object)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		if err == nil && object.GetLabels()[labelOwner] != owner {
			others = append(others, describe(object))
		}
	}
	return others, nil
}

// delete deletes an object, if it is there.
func (a *admin) delete(ctx context.Context, object client.Object) error {
	return ignoreGone(a.Delete(ctx, object))
}

// ignoreGone leaves out that an object, or the CRD of its kind, does not exist.
func ignoreGone(err error) error {
	if meta.IsNoMatchError(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}
