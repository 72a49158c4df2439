package tenant_test

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/clock"

	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/reconciler/tenant"
)

// An API server that signs tokens with another key, and knows the old one no more, accepts none that it has issued before: a
// client that there is gets another token, in the midst of its work, and goes on.
func TestSigningKeysAreRotated(t *testing.T) {
	w := newWorld(t)
	// The own credentials are those of a user whom this does not concern: a Pod's token is renewed by its kubelet.
	client := clientFor(t, newClients(t, tenant.Options{Config: w.Config, Clock: clock.RealClock{}}), w.account)
	apply(t, client, w.object("ConfigMap", "app", nil))
	key := filepath.Join(w.Dir, "keys", "service-account.key")
	before, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	other, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	for _, signing := range []struct {
		by  string
		key []byte
	}{
		{"another key", other},
		{"the key before", before}, // also when the other round fails: the tests that come after have this API server
	} {
		t.Run(signing.by, func(t *testing.T) {
			if err := os.WriteFile(key, signing.key, 0o600); err != nil {
				t.Fatal(err)
			}
			w.KillComponent(t, "kube-apiserver")
			w.AwaitAPI(t)
			mark := w.Audit(t)
			apply(t, client, w.object("ConfigMap", "app", map[string]any{"data": map[string]any{"signed": "anew"}}))
			minted := func(e cluster.AuditEvent) bool {
				return e.Subresource == "token" && e.Namespace == w.account.Namespace
			}
			if requests := mark.Since(t, minted); len(requests) != 1 {
				t.Errorf("tokens requested: %v, want one", requests)
			}
		})
	}
}
