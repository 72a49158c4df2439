package process_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/stageset/stageset/process"
)

// Whatever clusters tenants name, metrics name one host besides the program's own.
func TestHostsOfTenantsAreNotMeasured(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	defer server.Close()
	before := labelValues(t, "rest_client_requests_total", "host") // of other tests
	own := &rest.Config{Host: server.URL, QPS: -1}
	if err := process.MeasureRequests(own); err != nil {
		t.Fatal(err)
	}
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{server.URL, "http://localhost:" + address.Port(), "http://127.0.0.1.:" + address.Port()} {
		requests, err := rest.UnversionedRESTClientFor(dynamic.ConfigFor(&rest.Config{Host: host, QPS: -1}))
		if err != nil {
			t.Fatal(err)
		}
		_ = requests.Get().AbsPath("/version").MaxRetries(0).Do(t.Context()).Error() // one name may not resolve: that counts too
	}
	want := map[string]bool{address.Host: true, process.HostRemote: true}
	for _, name := range []string{"rest_client_requests_total", "rest_client_request_duration_seconds"} {
		got := labelValues(t, name, "host")
		maps.DeleteFunc(got, func(host string, _ bool) bool { return before[host] })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("hosts of %s (-want +got):\n%s", name, diff)
		}
	}
}

// labelValues are the values that a label of a metric has.
func labelValues(t *testing.T, metric, label string) map[string]bool {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, family := range families {
		if family.GetName() != metric {
			continue
		}
		for _, series := range family.GetMetric() {
			for _, pair := range series.GetLabel() {
				if pair.GetName() == label {
					found[pair.GetValue()] = true
				}
			}
		}
	}
	return found
}
