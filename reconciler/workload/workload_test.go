package workload

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// certificate is one in PEM.
func certificate(t testing.TB) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.StartTLS()
	defer server.Close()
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

// valid are the keys that there have to be, with others.
func valid(others map[string]string) map[string]string {
	data := map[string]string{"provider": "generic", "address": "https://api.example.com:6443"}
	for key, value := range others {
		data[key] = value
	}
	return data
}

func TestParse(t *testing.T) {
	const server = "https://api.example.com:6443"
	ca := certificate(t)
	cases := map[string]struct {
		data map[string]string
		want Cluster
	}{
		"no more than needed": {
			data: valid(nil), want: Cluster{Server: server, Audiences: []string{server}},
		},
		"everything": {
			data: valid(map[string]string{"ca.crt": ca, "audiences": " a \n\n b\n", "serviceAccountName": "deployer"}),
			want: Cluster{Server: server, CA: ca, Audiences: []string{"a", "b"}, ServiceAccount: "deployer"},
		},
		"line breaks of YAML": {
			data: map[string]string{"provider": "generic\n", "address": server + "\n", "serviceAccountName": "deployer\n"},
			want: Cluster{Server: server, Audiences: []string{server}, ServiceAccount: "deployer"},
		},
		"a cluster of a cloud": {
			data: map[string]string{"provider": "gcp", "cluster": "projects/a/locations/b/clusters/c\n", "serviceAccountName": "d"},
			want: Cluster{Cloud: "gcp", Resource: "projects/a/locations/b/clusters/c", ServiceAccount: "d"},
		},
		"a cluster of a cloud, found in another way": {
			data: map[string]string{
				"provider": "azure", "address": server, "audiences": "a", "cluster": "/subscriptions/" +
					"11111111-1111-1111-1111-111111111111/resourcegroups/A.b/providers/microsoft.containerservice/managedclusters/c",
			},
			want: Cluster{
				Cloud: "azure", Server: server, Audiences: []string{"a"}, Resource: "/subscriptions/" +
					"11111111-1111-1111-1111-111111111111/resourcegroups/A.b/providers/microsoft.containerservice/managedclusters/c",
			},
		},
		"an address as somebody wrote it is the audience, to the letter": {
			data: valid(map[string]string{"address": "https://API.example.com:443/"}),
			want: Cluster{Server: "https://api.example.com", Audiences: []string{"https://API.example.com:443/"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(tc.data)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	cases := map[string]struct {
		data map[string]string
		want string // the whole error
	}{
		"nothing": {
			want: "provider is not set: set it to one of aws, azure, gcp, generic; " +
				"address is not set: set it to the URL of the API server",
		},
		"another provider": {
			data: valid(map[string]string{"provider": "ibm"}),
			want: "provider is not one that there is: set it to one of aws, azure, gcp, generic",
		},
		"a provider without a cluster": {
			data: map[string]string{"provider": "aws"},
			want: "cluster is not the name of a cluster such as arn:aws:eks:eu-central-1:123456789012:cluster/production",
		},
		"a region that would be somebody's host": {
			data: map[string]string{"provider": "aws", "cluster": "arn:aws:eks:evil.example/?:123456789012:cluster/a"},
			want: "cluster is not the name of a cluster such as arn:aws:eks:eu-central-1:123456789012:cluster/production",
		},
		"a cluster that is another path": {
			data: map[string]string{"provider": "gcp", "cluster": "projects/a/locations/b/clusters/c/../d"},
			want: "cluster is not the name of a cluster such as projects/shop/locations/europe-west3/clusters/production",
		},
		"a cluster that nobody knows": {
			data: valid(map[string]string{"cluster": "a"}), want: "cluster says nothing to the provider: remove it",
		},
		"a key that is misspelled": {
			data: valid(map[string]string{"audience": "a", "CA.crt": "b"}),
			want: "CA.crt is not a key that there is: use provider, cluster, address, ca.crt, audiences, serviceAccountName; " +
				"audience is not a key that there is: use provider, cluster, address, ca.crt, audiences, serviceAccountName",
		},
		"an address that is not https": {
			data: valid(map[string]string{"address": "http://api.example.com"}),
			want: "address is not a URL such as https://api.example.com:6443",
		},
		"an address with credentials": {
			data: valid(map[string]string{"address": "https://user:pass@api.example.com"}),
			want: "address is not a URL such as https://api.example.com:6443",
		},
		"an empty CA": {
			data: valid(map[string]string{"ca.crt": ""}), want: "ca.crt has no certificate in PEM",
		},
		"a CA that is too long": {
			data: valid(map[string]string{"ca.crt": strings.Repeat("a", 64<<10+1)}), want: "ca.crt has more than 65536 bytes",
		},
		"no audience": {
			data: valid(map[string]string{"audiences": "\n \n"}),
			want: "audiences is empty: name one on each line, or remove it for the usual one",
		},
		"too many audiences": {
			data: valid(map[string]string{"audiences": strings.Repeat("a\n", 17)}), want: "audiences are more than 16",
		},
		"an audience that is too long": {
			data: valid(map[string]string{"audiences": "b\n" + strings.Repeat("a", 513)}),
			want: "audiences has one of more than 512 bytes",
		},
		"a path for an account": {
			data: valid(map[string]string{"serviceAccountName": "../../kube-system/serviceaccounts/admin"}),
			want: "serviceAccountName is not the name of a ServiceAccount",
		},
		"an empty account": {
			data: valid(map[string]string{"serviceAccountName": ""}),
			want: "serviceAccountName is not the name of a ServiceAccount",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(tc.data)
			if fmt.Sprint(err) != tc.want {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			if diff := cmp.Diff(Cluster{}, got); diff != "" {
				t.Errorf("nothing of it may be used (-want +got):\n%s", diff)
			}
		})
	}
}
