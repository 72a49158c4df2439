package tenant_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/tenant"
)

// Where the API server is not called as its issuer is, a token for either could be used on it, and for nobody else.
func TestAudiencesOfAnAPIServerThatIsNotItsIssuer(t *testing.T) {
	const called = "https://called.example.com"
	const first = "1" // the issuer of the first token, in tests
	for name, tc := range map[string]struct{ audiences, local string }{
		"what it is called":       {called, called},
		"its issuer":              {first, first},
		"one beside another":      {"elsewhere\n" + called, called},
		"another":                 {"elsewhere", ""},
		"what looks alike":        {called + "/", ""},
		"the address, by default": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			server := newFaulty(t)
			server.audience = called
			h := hubOf(t, server, tenant.Options{Dialer: loopback()})
			server.serve = func(w http.ResponseWriter, _ *http.Request, _ string) {
				audiences := fmt.Sprintf(`"audiences":%q,`, tc.audiences)
				if tc.audiences == "" {
					audiences = ""
				}
				answer(w, http.StatusOK, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"remote","namespace":"payments"},`+
					`"data":{"provider":"generic","address":"https://production.example.com",`+audiences+
					`"serviceAccountName":"`+deployer.Name+`"}}`)
			}
			_, err := h.Destination(t.Context(), tenant.Reference{
				Reader: deployer, KubeConfig: v1.InventoryKubeConfig{Kind: v1.KubeConfigConfigMap, Name: "remote"},
			})
			if tc.local == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			want := fmt.Sprintf("audiences has %q, which is the API server of this cluster", tc.local)
			if failed := failure.From(err); failed.Reason != v1.ReasonInvalidSpec || !strings.Contains(failed.Error(), want) {
				t.Errorf("%s: %v, want %q", failed.Reason, err, want)
			}
		})
	}
}

// Another cluster does not know that an account is gone that its tokens are of. Here the API server does, and one that was
// made anew has tokens of its own there, too.
func TestRecreatedAccountOnAnotherCluster(t *testing.T) {
	there := newElsewhere(t)
	server := newFaulty(t)
	h := hubOf(t, server, tenant.Options{Dialer: loopback()})
	data, err := json.Marshal(map[string]string{
		"provider": "generic", "address": there.URL, "ca.crt": string(there.ca()), "audiences": "elsewhere",
		"serviceAccountName": deployer.Name,
	})
	if err != nil {
		t.Fatal(err)
	}
	var gone atomic.Value // the token of the account that does not exist any more
	gone.Store("none")
	server.serve = func(w http.ResponseWriter, _ *http.Request, token string) {
		if token == gone.Load() {
			status(w, http.StatusUnauthorized, "Unauthorized", "there is no such account")
			return
		}
		answer(w, http.StatusOK, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"remote"},"data":`+string(data)+`}`)
	}
	ask := func() {
		t.Helper()
		to, err := h.Destination(t.Context(), tenant.Reference{
			Reader: deployer, KubeConfig: v1.InventoryKubeConfig{Kind: v1.KubeConfigConfigMap, Name: "remote"},
		})
		if err != nil {
			t.Fatal(err)
		}
		client, err := h.Target(t.Context(), to, deployer)
		if err != nil {
			t.Fatal(err)
		}
		if err := get(t.Context(), client); err != nil {
			t.Fatal(err)
		}
	}
	ask()
	ask()
	if got := len(there.askers()); got != 1 {
		t.Fatalf("asked by %v, want one token as long as the account is the same", there.askers())
	}
	gone.Store("1")
	ask()
	if got := len(there.askers()); got != 2 {
		t.Errorf("asked by %v, want another token for another account", there.askers())
	}
	ask()
	if got := server.minted(); got != 4 {
		t.Errorf("%d tokens were requested, want one for each cluster and account", got)
	}
}
