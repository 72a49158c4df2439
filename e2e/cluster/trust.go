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

// trust is a cluster whose service accounts another one knows.
type trust struct {
	issuer, discovery, ca string
	audience, prefix      string
}

// Trusting has a cluster of Another take tokens of the service accounts of this one, if they are for the audience. Their
// users are called as here, after the prefix. Anybody may then read what this cluster's tokens are verified by.
func Trusting(t testing.TB, c *Cluster, audience, prefix string) Option {
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
	from := &trust{
		issuer: read.Issuer, discovery: strings.TrimSuffix(config.Host, "/") + discovery, ca: string(config.CAData),
		audience: audience, prefix: prefix,
	}
	return func(o *options) { o.trust = from }
}

// write writes an AuthenticationConfiguration.
func (t *trust) write(dir string) (string, error) {
	content, err := json.Marshal(map[string]any{
		"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
		"jwt": []any{map[string]any{
			"issuer": map[string]any{
				"url": t.issuer, "discoveryURL": t.discovery, "certificateAuthority": t.ca, "audiences": []string{t.audience},
			},
			"claimMappings": map[string]any{"username": map[string]any{"claim": "sub", "prefix": t.prefix}},
		}},
	})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "authentication.json")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return "", fmt.Errorf("whom the cluster trusts: %w", err)
	}
	return path, nil
}
