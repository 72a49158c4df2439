package tenant_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/stageset/stageset/reconciler/tenant"
)

// A token is requested once for many requests; a request for one that fails is counted as such.
func TestTokenRequestsAreCounted(t *testing.T) {
	server := newFaulty(t)
	server.mint = func(w http.ResponseWriter, r *http.Request, n int) {
		if n > 1 {
			status(w, http.StatusInternalServerError, "InternalError", "etcd is away")
			return
		}
		server.token(w, r, n)
	}
	registry := prometheus.NewPedanticRegistry()
	measured, err := tenant.NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	clients := newClients(t, tenant.Options{Config: server.config(), Metrics: measured})
	client := clientFor(t, clients, deployer)
	for range 3 {
		if err := get(t.Context(), client); err != nil {
			t.Fatal(err)
		}
	}
	other := deployer
	other.Name = "another"
	if _, err := clients.Local(t.Context(), other); err == nil {
		t.Fatal("there is a client without a token")
	}
	want := `
# HELP stageset_token_requests_total Requests for tokens of tenants' service accounts, by what came of them (issued, failed). A` +
		` token is kept, and requested anew when most of its hour is over.
# TYPE stageset_token_requests_total counter
stageset_token_requests_total{result="failed"} 1
stageset_token_requests_total{result="issued"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
