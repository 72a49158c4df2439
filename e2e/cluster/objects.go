package cluster

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// tokenLifetime of TokenConfig: longer than any package's tests.
const tokenLifetime = time.Hour

// InstallCRDs applies every CustomResourceDefinition in the YAML files of fsys, at any depth, and waits until the
// apiserver serves them. They stay; installing them again is harmless.
func (c *Cluster) InstallCRDs(t testing.TB, fsys fs.FS) {
	t.Helper()
	var installed []*unstructured.Unstructured
	err := fs.WalkDir(fsys, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(file) != ".yaml" {
			return err
		}
		content, err := fs.ReadFile(fsys, file)
		if err != nil {
			return err
		}
		for _, object := range parse(t, string(content)) {
			if object.GetKind() == "CustomResourceDefinition" {
				c.apply(t, object)
				installed = append(installed, object)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("reading CRDs: %v", err)
	}
	if len(installed) == 0 {
		t.Fatal("no CustomResourceDefinition in the given files")
	}
	for _, crd := range installed {
		c.WaitFor(t, crd, Condition("Established", "True"))
	}
}

// Apply server-side applies every document as the administrator, in order. The test fails at the first that is
// refused; fields of other owners are taken over.
func (c *Cluster) Apply(t testing.TB, manifests string) {
	t.Helper()
	for _, object := range parse(t, manifests) {
		c.apply(t, object)
	}
}

func (c *Cluster) apply(t testing.TB, object *unstructured.Unstructured) {
	t.Helper()
	err := c.client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object.DeepCopy()),
		client.FieldOwner(fieldManager), client.ForceOwnership)
	if err != nil {
		t.Fatalf("applying %s: %v", describe(object), err)
	}
}

// parse splits documents at lines of three dashes and leaves out empty ones.
func parse(t testing.TB, manifests string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	reader := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(manifests)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatalf("reading YAML: %v", err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			t.Fatalf("reading YAML: %v\n%s", err, document)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// Namespace makes a namespace with a name of its own that starts with the prefix. It is deleted after the test, which
// does not wait for that.
func (c *Cluster) Namespace(t testing.TB, prefix string) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"}}
	if err := c.client.Create(t.Context(), namespace); err != nil {
		t.Fatalf("making a namespace: %v", err)
	}
	c.deleteAfter(t, namespace)
	if c.controllers {
		// Pods are refused until it exists.
		c.WaitFor(t, Ref("v1", "ServiceAccount", namespace.Name, "default"))
	}
	return namespace.Name
}

// deleteAfter deletes the object at the end of the test, and does not wait until it is gone.
func (c *Cluster) deleteAfter(t testing.TB, object client.Object) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout) // the test's own has ended
		defer cancel()
		if err := client.IgnoreNotFound(c.client.Delete(ctx, object)); err != nil {
			t.Errorf("deleting %s: %v", client.ObjectKeyFromObject(object), err)
		}
	})
}

// TokenConfig is a configuration with a real token of the service account, which must exist, and with nothing else of
// the administrator's. It has no client-side limit.
func (c *Cluster) TokenConfig(t testing.TB, namespace, account string) *rest.Config {
	t.Helper()
	seconds := int64(tokenLifetime.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	owner := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	if err := c.client.SubResource("token").Create(t.Context(), owner, request); err != nil {
		t.Fatalf("requesting a token of service account %s/%s: %v", namespace, account, err)
	}
	config := rest.AnonymousClientConfig(c.Config)
	config.BearerToken = request.Status.Token
	return unlimited(config)
}

// Client is the administrator's client for the kinds of Kubernetes, for those that the given functions add, and for
// unstructured objects of any kind.
func (c *Cluster) Client(t testing.TB, add ...func(*runtime.Scheme) error) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, f := range append(add, clientgoscheme.AddToScheme) {
		if err := f(scheme); err != nil {
			t.Fatalf("adding kinds to a client: %v", err)
		}
	}
	result, err := client.NewWithWatch(c.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatalf("making a client: %v", err)
	}
	return result
}
