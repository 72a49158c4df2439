package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// ExampleIssuer is what an AuthenticationConfiguration for Trusting has as the URL of its issuer.
const ExampleIssuer = "https://hub.example.com"

// trust is an AuthenticationConfiguration.
type trust string

// Trusting has a cluster of Another take tokens of the service accounts of this one, as the AuthenticationConfiguration
// says, in which ExampleIssuer becomes this one's issuer, and where its documents are. Anybody may then read what this
// cluster's tokens are verified by.
func Trusting(t testing.TB, c *Cluster, configuration string) Option {
	t.Helper()
	c.Apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: anybody-verifies-tokens}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:service-account-issuer-discovery"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:unauthenticated"}]`)
	client, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	const discovery = "/.well-known/openid-configuration"
	document, err := client.Discovery().RESTClient().Get().AbsPath(discovery).DoRaw(t.Context())
	if err != nil {
		t.Fatalf("what the tokens of %s are verified by: %v", c.Config.Host, err)
	}
	var read struct{ Issuer string }
	if err := json.Unmarshal(document, &read); err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(c.Config)
	if err := rest.LoadTLSFiles(config); err != nil {
		t.Fatal(err)
	}
	if strings.Count(configuration, ExampleIssuer) != 1 {
		t.Fatalf("%s is not once in\n%s", ExampleIssuer, configuration)
	}
	from := trust(strings.Replace(configuration, ExampleIssuer, fmt.Sprintf(
		"%s\n    discoveryURL: %s\n    certificateAuthority: %q",
		read.Issuer, strings.TrimSuffix(config.Host, "/")+discovery, config.CAData), 1))
	return func(o *options) { o.trust = from }
}

// write writes the AuthenticationConfiguration.
func (t trust) write(dir string) (string, error) {
	path := filepath.Join(dir, "authentication.yaml")
	if err := os.WriteFile(path, []byte(t), 0o600); err != nil {
		return "", fmt.Errorf("whom the cluster trusts: %w", err)
	}
	return path, nil
}
