package admission_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/e2e/cluster"
)

// P-34, P-36, P-37, P-38, P-39, P-40: three replicas share one Secret. Whatever is done to it, under constant requests, ends
// with all of them serving what it holds, and not one request fails meanwhile.
func TestNoRequestFailsWhateverHappensToTheSecret(t *testing.T) {
	i := install(t)
	i.installWebhooks(t)
	i.failClosed(t)
	replicas, _ := i.behindBalancer(t, 3)
	backup := i.certificate(t)
	l := i.load(t, 6)
	l.more(t, 100)
	for _, step := range []struct {
		name    string
		happens func(t *testing.T)
		keepsCA bool
	}{
		{name: "the leaf is renewed", keepsCA: true, happens: func(t *testing.T) {
			i.documented(t, `{"data":{"tls.crt":null,"tls.key":null}}`)
		}},
		{name: "everything is renewed", happens: func(t *testing.T) { i.documented(t, `{"data":null}`) }},
		{name: "the leaf is mangled", keepsCA: true, happens: func(t *testing.T) {
			i.changeSecret(t, func(data map[string][]byte) { data["tls.key"] = []byte("mangled") })
		}},
		{name: "the CA is mangled", happens: func(t *testing.T) {
			i.changeSecret(t, func(data map[string][]byte) { data["ca.crt"] = []byte("mangled") })
		}},
		{name: "deleted, and restored as the log says", happens: func(t *testing.T) {
			i.deleteSecret(t)
			cluster.Eventually(t, func(context.Context) error { return contains(replicas[0].Output(), i.restore()) })
			l.more(t, 100)
			i.documented(t, "kubectl create secret")
		}},
		{name: "deleted, and restored from a backup", happens: func(t *testing.T) {
			i.deleteSecret(t)
			l.more(t, 100)
			restored := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: i.name, Name: i.secret().GetName()}, Data: backup}
			if err := i.client.Create(t.Context(), restored); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		before := i.certificate(t)
		step.happens(t)
		i.turned(t, replicas, before)
		l.more(t, 100)
		after := i.certificate(t)
		if kept := bytes.Equal(before["ca.crt"], after["ca.crt"]); kept != step.keepsCA {
			t.Errorf("%s: the CA is the same: %t, want %t", step.name, kept, step.keepsCA)
		}
		if !step.keepsCA {
			i.trusts(t, after["ca.crt"], before["ca.crt"])
		}
	}
	after := i.certificate(t)
	if !bytes.Equal(after["tls.crt"], backup["tls.crt"]) {
		t.Error("what was restored from the backup is not what is in the Secret")
	}
	i.documented(t, `{"data":{"ca-previous.crt":null}}`)
	cluster.Eventually(t, func(context.Context) error {
		if !bytes.Equal(i.bundle(t, mutating), after["ca.crt"]) || !bytes.Equal(i.bundle(t, validating), after["ca.crt"]) {
			return errors.New("a CA that was taken out of the Secret is still trusted")
		}
		return nil
	})
	l.more(t, 100)
	l.stop(t)
	i.onlyTheLeaderWrites(t, replicas)
}

// P-35: nobody has to do anything for a certificate to be renewed in time, leaf and CA.
func TestCertificatesAreRenewedInTime(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.installWebhooks(t)
	i.failClosed(t)
	replicas, _ := i.behindBalancer(t, 2, "--cert-validity=65s", "--cert-ca-validity=85s", "--cert-renew-before=45s")
	l := i.load(t, 2)
	first := i.certificate(t)
	i.turned(t, replicas, first)
	second := i.certificate(t)
	if !bytes.Equal(first["ca.crt"], second["ca.crt"]) {
		t.Error("the leaf was to be renewed before the CA")
	}
	cluster.Eventually(t, func(context.Context) error {
		if bytes.Equal(i.certificate(t)["ca.crt"], first["ca.crt"]) {
			return errors.New("the CA is not renewed yet")
		}
		return nil
	})
	i.turned(t, replicas, second)
	i.trusts(t, i.certificate(t)["ca.crt"], first["ca.crt"])
	l.more(t, 20)
	l.stop(t)
	for n, r := range replicas {
		series := r.measure(t)
		for _, kind := range []string{"ca", "leaf", "bundle"} {
			left := series[`stageset_certificate_expiry_seconds{kind="`+kind+`"}`]
			if left <= 0 || left > 85 {
				t.Errorf("replica %d: %v seconds are left to the %s", n, left, kind)
			}
		}
	}
}

// P-39: while there is no leader the bundles stay as they are. Replicas serve on with the certificate that is trusted, and
// change over when there is one again.
func TestNoRequestFailsWhileThereIsNoLeader(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.installWebhooks(t)
	i.failClosed(t)
	replicas, b := i.behindBalancer(t, 3)
	var followers []*replica
	for _, r := range replicas {
		if r.leads(t, i) {
			r.Kill()
		} else {
			followers = append(followers, r)
		}
	}
	if len(followers) != 2 {
		t.Fatalf("%d of three replicas do not lead", len(followers))
	}
	b.look(t.Context())
	before := i.certificate(t)
	l := i.load(t, 2)
	i.changeSecret(t, func(data map[string][]byte) { clear(data) })
	l.more(t, 50)
	for n, r := range followers {
		if !bytes.Equal(served(t, r), leafIn(before)) {
			t.Errorf("follower %d serves what nobody trusts", n)
		}
	}
	// A lease is good for 45 seconds, and followers may have seen it last renewed, and may ask again, five seconds later.
	err := wait.PollUntilContextTimeout(t.Context(), time.Second, 2*time.Minute, true, func(context.Context) (bool, error) {
		return slices.ContainsFunc(followers, func(r *replica) bool { return r.leads(t, i) }), nil
	})
	if err != nil {
		t.Fatalf("nobody leads: %v", err)
	}
	i.turned(t, followers, before)
	l.more(t, 50)
	l.stop(t)
}

// turned waits until the Secret holds another certificate than before, all replicas serve it, and all are ready.
func (i *installation) turned(t *testing.T, replicas []*replica, before map[string][]byte) {
	t.Helper()
	cluster.Eventually(t, func(ctx context.Context) error {
		leaf := leafIn(i.certificate(t))
		if leaf == nil || bytes.Equal(leaf, leafIn(before)) {
			return errors.New("the Secret holds no new certificate")
		}
		for n, r := range replicas {
			if !bytes.Equal(served(t, r), leaf) {
				return fmt.Errorf("replica %d does not serve it", n)
			}
			if err := readiness(ctx, r); err != nil {
				return fmt.Errorf("replica %d: %w", n, err)
			}
		}
		return nil
	})
}

// trusts checks that both configurations trust first of all the current CA, and also the one before, and that the Secret
// remembers it.
func (i *installation) trusts(t *testing.T, current, before []byte) {
	t.Helper()
	for _, kind := range []string{mutating, validating} {
		bundle := i.bundle(t, kind)
		if !bytes.HasPrefix(bundle, current) || !bytes.Contains(bundle, before) {
			t.Errorf("the caBundle of the %s is not the current CA and the one before:\n%s", kind, bundle)
		}
	}
	data := i.certificate(t)
	if !bytes.Contains(data["ca-previous.crt"], before) || len(data["ca-previous.time"]) == 0 {
		t.Error("the Secret does not say which CA was the one before, and when it was replaced")
	}
}

// onlyTheLeaderWrites checks that the others did not even try.
func (i *installation) onlyTheLeaderWrites(t *testing.T, replicas []*replica) {
	t.Helper()
	leaders := 0
	for n, r := range replicas {
		writes := r.count(t, `controller_runtime_reconcile_total{controller="certificate-bundle",result="success"}`) > 0
		if leads := r.leads(t, i); leads {
			leaders++
		} else if writes {
			t.Errorf("replica %d writes bundles without being elected", n)
		}
	}
	if leaders != 1 {
		t.Errorf("%d replicas are elected", leaders)
	}
}

func (r *replica) leads(t *testing.T, i *installation) bool {
	t.Helper()
	return r.count(t, `leader_election_master_status{name="`+i.name+`-admission"}`) == 1
}

// certificate is the data of the Secret; nil while it does not exist.
func (i *installation) certificate(t *testing.T) map[string][]byte {
	t.Helper()
	var secret corev1.Secret
	if err := i.client.Get(t.Context(), client.ObjectKeyFromObject(i.secret()), &secret); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return secret.Data
}

// changeSecret changes the data of the Secret, whoever else does so at the same time.
func (i *installation) changeSecret(t *testing.T, change func(map[string][]byte)) {
	t.Helper()
	var secret corev1.Secret
	if err := i.client.Get(t.Context(), client.ObjectKeyFromObject(i.secret()), &secret); err != nil {
		t.Fatal(err)
	}
	before := maps.Clone(secret.Data)
	change(secret.Data)
	if maps.EqualFunc(before, secret.Data, bytes.Equal) {
		t.Fatal("nothing of the Secret is changed")
	}
	secret.ResourceVersion = ""
	if err := i.client.Update(t.Context(), &secret); err != nil {
		t.Fatal(err)
	}
}

func (i *installation) deleteSecret(t *testing.T) {
	t.Helper()
	if err := i.client.Delete(t.Context(), i.secret()); err != nil {
		t.Fatal(err)
	}
}

// documented runs the one command of the documentation that contains a text, with the names of this release.
func (i *installation) documented(t *testing.T, part string) {
	t.Helper()
	content, err := os.ReadFile("../../docs/certificates.md")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(content)) {
		if strings.HasPrefix(line, "kubectl ") && strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	if len(found) != 1 {
		t.Fatalf("the documentation has %d commands with %s", len(found), part)
	}
	var arguments []string
	for _, field := range strings.Fields(i.expand(found[0]))[1:] {
		arguments = append(arguments, strings.Trim(field, "'"))
	}
	if output, err := i.kubectl(t, nil, arguments...); err != nil {
		t.Fatal(output)
	}
}

// restore is the command that the log has for a deleted Secret.
func (i *installation) restore() string {
	return "kubectl create secret generic " + i.secret().GetName() + " --namespace " + i.name
}

// leafIn is the serving certificate in the data of a Secret; nil when there is none.
func leafIn(data map[string][]byte) []byte {
	block, _ := pem.Decode(data["tls.crt"])
	if block == nil {
		return nil
	}
	return block.Bytes
}

// served is the certificate that a replica serves.
func served(t *testing.T, r *replica) []byte {
	t.Helper()
	address := fmt.Sprintf("127.0.0.1:%d", r.port)
	connection, err := tls.Dial("tcp", address, &tls.Config{ServerName: "localhost", InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	return connection.ConnectionState().PeerCertificates[0].Raw
}
