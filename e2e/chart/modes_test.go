package chart_test

import (
	"encoding/base64"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/api/crds"
	"github.com/stageset/stageset/e2e/cluster"
)

// What each mode renders is what an API server takes, without a field that it does not know and with CEL that compiles.
func TestModesAreAccepted(t *testing.T) {
	c := cluster.Shared(t)
	strict := client.WithFieldValidation(c.Client(t), metav1.FieldValidationStrict)
	namespaces(t, c, namespace, "team-a", "team-b", "policies")
	neighbours(t, c)
	for mode, values := range modes {
		t.Run(mode, func(t *testing.T) {
			for _, object := range render(t, values+"\ncrds: {install: false}\n") {
				if err := strict.Create(t.Context(), object, client.DryRunAll); err != nil {
					t.Errorf("%s: %v", describe(object), err)
				}
			}
		})
	}
}

// What each mode renders is what both programs take: with exactly these arguments, files and rights they become ready, for
// which they look themselves whether a right is missing.
func TestModesRun(t *testing.T) {
	c := cluster.Shared(t)
	c.InstallCRDs(t, crds.FS)
	neighbours(t, c)
	namespaces(t, c, "team-a", "team-b", "policies")
	for _, kind := range []string{"limit", "quota"} {
		c.Apply(t, strings.ReplaceAll(parameterKind, "KIND", kind))
	}
	for mode, values := range modes {
		t.Run(mode, func(t *testing.T) {
			r := prepare(t, "mode", values)
			r.values = append(r.values, valuesFile(t, "crds: {install: false}"))
			certificate := r.secrets(t)
			r.authorities(t, certificate)
			r.install(t, "--wait=hookOnly") // no node has the labels that some modes want
			if mode == certificateInFiles {
				r.publish(t, certificate)
			}
			r.start(t, "admission")
			r.start(t, "reconciler")
		})
	}
}

// neighbours installs the CRDs of the programs that run beside the product.
func neighbours(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	folder, err := cluster.Binary("neighbour-crds")
	if err != nil {
		t.Fatal(err)
	}
	c.InstallCRDs(t, os.DirFS(folder))
}

// parameterKind is the CRD of a kind of parameters that a mode names.
const parameterKind = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: KINDs.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: KIND, plural: KINDs, singular: KIND}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}`

// namespaces makes namespaces for the time of the test.
func namespaces(t *testing.T, c *cluster.Cluster, names ...string) {
	t.Helper()
	for _, name := range names {
		c.Apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+"}}")
		t.Cleanup(func() {
			made := cluster.Ref("v1", "Namespace", "", name)
			if err := c.Client(t).Delete(uncancelled{t}.Context(), made); err != nil {
				t.Error(err)
			}
			c.WaitGone(uncancelled{t}, made)
		})
	}
}

// secrets makes those that modes name, and returns the certificate that is in one, with its authority.
func (r *release) secrets(t *testing.T) []byte {
	t.Helper()
	certificate, key, err := certutil.GenerateSelfSignedCertKey(r.name+"-admission."+r.namespace+".svc", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]map[string][]byte{
		"delivery-certificate": {corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key},
		"hash-key":             {"key": make([]byte, 32)},
	} {
		secret := &corev1.Secret{Data: data}
		secret.Namespace, secret.Name = r.namespace, name
		if err := r.client.Create(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
	return certificate
}

// publish has the API server trust a certificate, as cert-manager's injector does.
func (r *release) publish(t *testing.T, certificate []byte) {
	t.Helper()
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		live := r.WaitFor(t, cluster.Ref("admissionregistration.k8s.io/v1", kind, "", r.name+"-admission"))
		for _, webhook := range live.Object["webhooks"].([]any) {
			bundle := base64.StdEncoding.EncodeToString(certificate)
			if err := unstructured.SetNestedField(webhook.(map[string]any), bundle, "clientConfig", "caBundle"); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.client.Update(t.Context(), live); err != nil {
			t.Fatal(err)
		}
	}
}
