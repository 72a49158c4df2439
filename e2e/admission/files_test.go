package admission_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

// rolesForFiles are those of the chart without what docs/certificates.md says can be taken out where somebody else makes
// the certificate.
func (i *installation) rolesForFiles(t *testing.T) string {
	t.Helper()
	var out []string
	for _, manifest := range strings.Split(i.manifest(t, "admission-rbac.yaml"), "\n---\n") {
		var role rbacv1.ClusterRole // a Role has the same rules
		if err := yaml.Unmarshal([]byte(manifest), &role); err != nil {
			t.Fatal(err)
		}
		role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
			return slices.Contains(rule.Resources, "secrets")
		})
		for n, rule := range role.Rules {
			if slices.Contains(rule.APIGroups, "admissionregistration.k8s.io") {
				role.Rules[n].Verbs = slices.DeleteFunc(rule.Verbs, func(verb string) bool { return verb == "patch" })
			}
		}
		content, err := yaml.Marshal(role)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(content))
	}
	return strings.Join(out, "\n---\n")
}

// P-37, P-38: with certificates in files, as cert-manager and a kubelet keep them, a new one is served once it is trusted,
// without one failed request; the caBundle and the Secret are somebody else's and are left alone.
func TestCertificateFromFiles(t *testing.T) {
	i := install(t)
	i.installWebhooks(t)
	i.failClosed(t)
	i.Apply(t, i.rolesForFiles(t))
	mark := i.Audit(t)
	before, after := newIssuer(t), newIssuer(t)
	mount := newMount(t)
	mount.put(t, before.issue(t))
	var replicas []*replica
	for range 2 {
		replicas = append(replicas, i.startAt(t, process.FreePort(t), "/healthz", filesArguments(mount, drainDelay)...))
	}
	for n, r := range replicas {
		cluster.Eventually(t, func(ctx context.Context) error {
			return contains(probe(ctx, t, r), "the bundle holds no certificate")
		})
		if readiness(t.Context(), r) == nil {
			t.Errorf("replica %d is ready without a caBundle", n)
		}
	}
	i.publish(t, before.bundle())
	i.serve(t, replicas, mount)
	balance(t, i.port, replicas...)

	l := i.load(t, 4)
	l.more(t, 50)
	mount.put(t, before.issue(t)) // renewed under the same CA
	i.serve(t, replicas, mount)
	l.more(t, 50)
	renewed := mount.leaf(t)
	mount.put(t, after.issue(t)) // of another CA, which is not published yet
	l.more(t, 50)
	for n, r := range replicas {
		if !bytes.Equal(served(t, r), renewed) {
			t.Errorf("replica %d serves what is not trusted yet", n)
		}
	}
	i.publish(t, after.bundle(), before.bundle())
	i.serve(t, replicas, mount)
	l.more(t, 50)
	mount.put(t, map[string][]byte{"tls.crt": []byte("mangled"), "tls.key": []byte("mangled")})
	l.more(t, 50)
	mount.put(t, after.issue(t))
	i.serve(t, replicas, mount)
	l.more(t, 50)
	l.stop(t)

	i.publish(t, before.bundle()) // a mistake, which is for others to repair
	for n, r := range replicas {
		cluster.Eventually(t, func(ctx context.Context) error { return contains(probe(ctx, t, r), "unknown authority") })
		if r.measure(t)["stageset_certificate_trusted"] != 0 {
			t.Errorf("replica %d says that its certificate is trusted", n)
		}
	}
	i.publish(t, after.bundle())
	i.serve(t, replicas, mount)

	for _, event := range mark.Since(t, cluster.ByAccount(i.name, i.name+"-admission")) {
		if event.Code == 403 || event.Resource == "secrets" || event.Group == "admissionregistration.k8s.io" && event.Write() {
			t.Errorf("the program asked for what is not its own: %s", event)
		}
	}
}

// Who forgets to mount the files is told at once.
func TestStartNamesTheMissingFile(t *testing.T) {
	i := install(t)
	mount := newMount(t)
	if output := i.fail(t, filesArguments(mount)...); !strings.Contains(output, filepath.Join(string(mount), "tls.crt")) {
		t.Errorf("the output does not name the file:\n%s", output)
	}
}

func filesArguments(m mount, more ...string) []string {
	return append([]string{"--cert-provider=files", "--cert-dir=" + string(m)}, more...)
}

// publish writes the caBundle of both configurations, as cert-manager's injector does.
func (i *installation) publish(t *testing.T, bundles ...[]byte) {
	t.Helper()
	bundle := base64.StdEncoding.EncodeToString(slices.Concat(bundles...))
	for _, kind := range []string{mutating, validating} {
		var patch []string
		for n := range bundleEntries(i.WaitFor(t, i.configuration(kind))) {
			path := fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", n)
			patch = append(patch, `{"op": "add", "path": "`+path+`", "value": "`+bundle+`"}`)
		}
		content := []byte("[" + strings.Join(patch, ",") + "]")
		err := i.client.Patch(t.Context(), i.configuration(kind), client.RawPatch(types.JSONPatchType, content))
		if err != nil {
			t.Fatal(err)
		}
	}
}

// serve waits until all replicas are ready and serve what is mounted.
func (i *installation) serve(t *testing.T, replicas []*replica, m mount) {
	t.Helper()
	leaf := m.leaf(t)
	cluster.Eventually(t, func(ctx context.Context) error {
		for n, r := range replicas {
			if !bytes.Equal(served(t, r), leaf) {
				return fmt.Errorf("replica %d does not serve what is mounted", n)
			}
			if err := readiness(ctx, r); err != nil {
				return fmt.Errorf("replica %d: %w", n, err)
			}
		}
		return nil
	})
}

// mount is a directory whose files change as those of a mounted Secret do: all at once.
type mount string

func newMount(t *testing.T) mount {
	t.Helper()
	m := mount(t.TempDir())
	for _, name := range []string{"tls.crt", "tls.key", "ca.crt"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(string(m), name)); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (m mount) put(t *testing.T, files map[string][]byte) {
	t.Helper()
	fresh, err := os.MkdirTemp(string(m), "..")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(fresh, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link, old := filepath.Join(string(m), "..data"), ""
	if target, err := os.Readlink(link); err == nil {
		old = filepath.Join(string(m), target)
	}
	if err := os.Symlink(filepath.Base(fresh), link+"_tmp"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link+"_tmp", link); err != nil {
		t.Fatal(err)
	}
	if old == "" {
		return
	}
	if err := os.RemoveAll(old); err != nil {
		t.Fatal(err)
	}
}

// leaf is the certificate that is mounted.
func (m mount) leaf(t *testing.T) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(string(m), "tls.crt"))
	if err != nil {
		t.Fatal(err)
	}
	return leafIn(map[string][]byte{"tls.crt": content})
}

// issuer is a CA of somebody else, whose certificates are good for localhost.
type issuer struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newIssuer(t *testing.T) issuer {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "somebody else"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	key := newKey(t)
	return issuer{certificate: signed(t, template, template, key, key), key: key}
}

// issue is the content of the files of a new certificate.
func (i issuer) issue(t *testing.T) map[string][]byte {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	key := newKey(t)
	leaf := signed(t, template, i.certificate, key, i.key)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{
		"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw}),
		"tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		"ca.crt":  i.bundle(),
	}
}

func (i issuer) bundle() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.certificate.Raw})
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// signed is a certificate of the public part of key.
func signed(t *testing.T, template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}
