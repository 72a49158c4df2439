package admission_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/e2e/cluster"
)

const (
	mutating   = "MutatingWebhookConfiguration"
	validating = "ValidatingWebhookConfiguration"
)

// P-14, P-39: a replica takes no traffic before the API server can reach it through the published bundles.
func TestReadyOnlyWhenBothBundlesVerifyTheCertificate(t *testing.T) {
	i := install(t)
	r := i.startAt(t, i.port, "/healthz")
	cluster.Eventually(t, func(ctx context.Context) error {
		return contains(probe(ctx, t, r), "MutatingWebhookConfiguration "+i.name+"-admission does not exist")
	})
	i.installWebhooks(t)
	cluster.Eventually(t, func(ctx context.Context) error { return readiness(ctx, r) })

	// P-40: the Secret was empty, and is now what the rotator made of it.
	secret := i.certificate(t)
	for _, kind := range []string{mutating, validating} {
		if got := i.bundle(t, kind); !bytes.Equal(got, secret["ca.crt"]) {
			t.Errorf("the caBundle of the %s is not the CA of the Secret:\n%s", kind, got)
		}
	}
}

// P-14: a replica that is ready has every policy that is stored, with its parameters: nothing slips through a restart, and
// nothing is refused because of it.
func TestReadyOnlyWhenEveryPolicyHolds(t *testing.T) {
	i := install(t)
	i.Apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: most, namespace: "+i.name+"}, data: {stages: '1'}}")
	policy := i.policy(t, "most", `
paramKind: {apiVersion: v1, kind: ConfigMap}
paramRef: {name: most, namespace: `+i.name+`}
validations:
- {name: stages, expression: 'object.spec.stages.size() <= int(params.data.stages)', message: too many stages}`)
	i.installWebhooks(t)
	for range 3 {
		r := i.start(t)
		if err := i.client.Create(t.Context(), i.stageSet(t, "one", validSpec), client.DryRunAll); err != nil {
			t.Errorf("what is allowed: %v", err)
		}
		err := i.client.Create(t.Context(), i.stageSet(t, "two", twoStagesSpec), client.DryRunAll)
		if err := refused(err, policy.GetName()+"/stages: too many stages"); err != nil {
			t.Errorf("what is not: %v", err)
		}
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// P-37: whatever somebody does to a bundle, it is what it was right after.
func TestBundleIsRepaired(t *testing.T) {
	i := install(t)
	i.installWebhooks(t)
	r := i.start(t)
	good := i.bundle(t, validating)
	patch := func(kind, operations string) {
		t.Helper()
		err := i.client.Patch(t.Context(), i.configuration(kind), client.RawPatch(types.JSONPatchType, []byte(operations)))
		if err != nil {
			t.Fatal(err)
		}
	}
	foreign := base64.StdEncoding.EncodeToString(i.Config.CAData)
	replace := `[{"op": "replace", "path": "/webhooks/%d/clientConfig/caBundle", "value": "` + foreign + `"}]`
	const remove = `[{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]`
	for name, change := range map[string]func(){
		"wiped":                                func() { patch(validating, remove) },
		"replaced":                             func() { patch(validating, fmt.Sprintf(replace, 0)) },
		"replaced in the webhook for policies": func() { patch(validating, fmt.Sprintf(replace, 1)) },
		"replaced in the other configuration":  func() { patch(mutating, fmt.Sprintf(replace, 0)) },
		"deleted and installed again": func() {
			i.removeWebhooks(t)
			i.installWebhooks(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			change()
			for _, kind := range []string{mutating, validating} {
				i.WaitFor(t, i.configuration(kind), func(object *unstructured.Unstructured) error {
					if got := bundleOf(object); !bytes.Equal(got, good) {
						return fmt.Errorf("the caBundle is %q", got)
					}
					return nil
				})
			}
			cluster.Eventually(t, func(ctx context.Context) error { return readiness(ctx, r) })
		})
	}
	i.onlyBundleIsOurs(t)
}

// onlyBundleIsOurs looks into managedFields: the program owns the caBundle, and what names it, and nothing else.
func (i *installation) onlyBundleIsOurs(t *testing.T) {
	t.Helper()
	for _, kind := range []string{mutating, validating} {
		live := i.WaitFor(t, i.configuration(kind))
		owned := "nothing"
		for _, fields := range live.GetManagedFields() {
			if fields.Manager == "stageset-admission-ca" && fields.Operation == metav1.ManagedFieldsOperationApply {
				owned = fields.FieldsV1.GetRawString()
			}
		}
		var names []string
		for _, entry := range bundleEntries(live) {
			names = append(names, entry["name"].(string))
		}
		slices.Sort(names)
		for n, name := range names {
			names[n] = fmt.Sprintf(`"k:{\"name\":\"%s\"}":{".":{},"f:clientConfig":{"f:caBundle":{}},"f:name":{}}`, name)
		}
		want := `{"f:webhooks":{` + strings.Join(names, ",") + `}}`
		if owned != want {
			t.Errorf("fields of the %s that the program owns:\n got %s\nwant %s", kind, owned, want)
		}
	}
}

// A certificate for other names than those that the API server uses is replaced under the same CA.
func TestCertificateIsReissuedForAnotherName(t *testing.T) {
	i := install(t)
	i.installWebhooks(t)
	before := i.start(t)
	authority := i.bundle(t, validating)
	if err := before.Stop(); err != nil {
		t.Fatal(err)
	}
	i.start(t, "--cert-dns-names=localhost,localhost.localdomain")
	i.WaitFor(t, i.secret(), func(object *unstructured.Unstructured) error {
		leaf, err := leafOf(object)
		if err != nil {
			return err
		}
		return leaf.VerifyHostname("localhost.localdomain")
	})
	if got := i.bundle(t, validating); !bytes.Equal(got, authority) {
		t.Errorf("the CA changed:\n%s", got)
	}
}

// P-37: without its Secret a replica serves on, says how to bring it back, and counts.
func TestDeletedSecretStopsNobody(t *testing.T) {
	i := install(t)
	i.installWebhooks(t)
	r := i.start(t)
	i.deleteSecret(t)
	cluster.Eventually(t, func(context.Context) error { return contains(r.Output(), i.restore()) })
	if err := i.client.Create(t.Context(), i.stageSet(t, "valid", validSpec), client.DryRunAll); err != nil {
		t.Errorf("a StageSet while the Secret is gone: %v", err)
	}
	if err := readiness(t.Context(), r); err != nil {
		t.Errorf("readiness while the Secret is gone: %v", err)
	}
	series := r.measure(t)
	if series[`stageset_certificate_problems_total{kind="secret-missing"}`] == 0 {
		t.Error("it is not counted")
	}
	const month = 30 * 24 * 60 * 60
	for _, kind := range []string{"ca", "leaf", "bundle"} {
		if left := series[`stageset_certificate_expiry_seconds{kind="`+kind+`"}`]; left < month {
			t.Errorf("%v seconds are left to the %s", left, kind)
		}
	}
	if series["stageset_certificate_trusted"] != 1 {
		t.Error("it is not said to be trusted")
	}
}

// bundle is the caBundle of all webhooks of a configuration.
func (i *installation) bundle(t testing.TB, kind string) []byte {
	t.Helper()
	return bundleOf(i.WaitFor(t, i.configuration(kind)))
}

func bundleEntries(configuration *unstructured.Unstructured) []map[string]any {
	webhooks, _, _ := unstructured.NestedSlice(configuration.Object, "webhooks")
	var entries []map[string]any
	for _, webhook := range webhooks {
		if entry, ok := webhook.(map[string]any); ok {
			entries = append(entries, entry)
		}
	}
	return entries
}

// bundleOf is the caBundle that all webhooks of a configuration have; what is not the same in all is no certificate.
func bundleOf(configuration *unstructured.Unstructured) []byte {
	var bundles [][]byte
	for _, entry := range bundleEntries(configuration) {
		encoded, _, _ := unstructured.NestedString(entry, "clientConfig", "caBundle")
		bundle, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return []byte(encoded)
		}
		bundles = append(bundles, bundle)
	}
	bundles = slices.CompactFunc(bundles, bytes.Equal)
	return bytes.Join(bundles, []byte("and in another webhook:\n"))
}

func leafOf(secret *unstructured.Unstructured) (*x509.Certificate, error) {
	encoded, _, _ := unstructured.NestedString(secret.Object, "data", "tls.crt")
	content, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, errors.New("there is no certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}

// readiness is why a replica is not ready; nil when it is.
func readiness(ctx context.Context, r *replica) error {
	if r.ready(ctx) {
		return nil
	}
	return errors.New("it is not ready")
}

// probe is what the readiness probe of a replica says in detail. A probe that fails withholds the reasons from whoever
// asks; they are in the log.
func probe(ctx context.Context, t *testing.T, r *replica) string {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.healthURL("/readyz?verbose"), nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	return string(content) + r.Output()
}

func contains(text, part string) error {
	if strings.Contains(text, part) {
		return nil
	}
	return fmt.Errorf("it lacks %q:\n%s", part, text)
}
