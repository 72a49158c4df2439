package tenant_test

import (
	"fmt"
	"net/http"
	"strings"
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
