package certs

import (
	"context"
	"os"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/e2e/cluster"
)

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

// world is what the package works on in a real API server: a Secret, both webhook configurations, and the time.
type world struct {
	client  client.WithWatch
	clock   *testingclock.FakePassiveClock
	options Options
}

// newWorld begins at noon with an empty Secret, and with webhooks that have no caBundle and are never called.
func newWorld(t *testing.T) *world {
	t.Helper()
	c := cluster.Shared(t)
	namespace := c.Namespace(t, "certs")
	w := &world{client: c.Client(t), clock: testingclock.NewFakePassiveClock(noon)}
	w.options = Options{
		Provider: ProviderSecret, Configuration: namespace, DNSNames: []string{"one.svc"}, Clock: w.clock,
		Secret: types.NamespacedName{Namespace: namespace, Name: "tls"},
	}
	w.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tls"}})
	reach := admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://localhost:1/")}
	none := admissionregistrationv1.SideEffectClassNone
	w.create(t, &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Webhooks: []admissionregistrationv1.MutatingWebhook{
			{Name: "one.example.com", ClientConfig: reach, SideEffects: &none, AdmissionReviewVersions: []string{"v1"}},
			{Name: "two.example.com", ClientConfig: reach, SideEffects: &none, AdmissionReviewVersions: []string{"v1"}},
		},
	})
	w.create(t, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{
			{Name: "one.example.com", ClientConfig: reach, SideEffects: &none, AdmissionReviewVersions: []string{"v1"}},
		},
	})
	return w
}

func (w *world) create(t *testing.T, object client.Object) {
	t.Helper()
	if err := w.client.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(w.client.Delete(context.Background(), object)); err != nil {
			t.Error(err)
		}
	})
}

// change updates the Secret.
func (w *world) change(t *testing.T, change func(*corev1.Secret)) {
	t.Helper()
	secret := w.secret(t)
	change(secret)
	if err := w.client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}

// issue is what the rotator does: it changes its own keys and leaves the others.
func (w *world) issue(t *testing.T, ca authority, names ...string) {
	t.Helper()
	w.change(t, func(secret *corev1.Secret) {
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		for key, value := range ca.data(t, names...) {
			secret.Data[key] = value
		}
	})
}

func (w *world) secret(t *testing.T) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	if err := w.client.Get(t.Context(), w.options.Secret, secret); err != nil {
		t.Fatal(err)
	}
	return secret
}

// bundles are those of the three webhooks: two that mutate and one that validates.
func (w *world) bundles(t *testing.T) []string {
	t.Helper()
	found, err := readConfigurations(t.Context(), w.client, w.options.Configuration)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, bundle := range found.bundles() {
		out = append(out, string(bundle))
	}
	return out
}
