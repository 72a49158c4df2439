package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// Both are what docs/multi-cluster.md has.
const (
	// otherAudience is what the other cluster is called in tokens.
	otherAudience = "production"
	// issuedHere is before the names of users whom the other cluster knows by tokens of this one.
	issuedHere = "hub:"
)

// documentedTrust is the AuthenticationConfiguration of docs/multi-cluster.md, by which the other cluster trusts this one.
func documentedTrust(t testing.TB) string {
	t.Helper()
	return documentedYAML(t, "multi-cluster.md", "kind: AuthenticationConfiguration")
}

// trusted lets the account's token be used on the other cluster, to impersonate the account there.
func (n *remote) trusted(t testing.TB) {
	t.Helper()
	n.there.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: impersonate-deployer, namespace: %[1]s}
rules:
- {apiGroups: [""], resources: [serviceaccounts], resourceNames: [%[2]s], verbs: [impersonate]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: impersonate-deployer, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: impersonate-deployer}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: "%[3]ssystem:serviceaccount:%[1]s:%[2]s"}`,
		n.namespace, deployer, issuedHere))
}

// connection makes, or changes, the ConfigMap "connection", which leads to the other cluster with a token of the
// account, but for what is set, or removed with an empty text.
func (n *remote) connection(t testing.TB, set map[string]string) {
	t.Helper()
	config := rest.CopyConfig(n.there.Config)
	if err := rest.LoadTLSFiles(config); err != nil {
		t.Fatal(err)
	}
	data := map[string]string{
		"provider": "generic", "address": config.Host, "ca.crt": string(config.CAData), "audiences": otherAudience,
		"serviceAccountName": deployer,
	}
	for key, value := range set {
		if data[key] = value; value == "" {
			delete(data, key)
		}
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "connection", "namespace": n.namespace},
		"data": data,
	})
	if err != nil {
		t.Fatal(err)
	}
	n.Apply(t, string(text))
}

const byConnection = "kubeConfig: {configMapRef: {name: connection}}\nretryInterval: 2s\n"

// T-15, T-16: with a token that the other cluster takes because it trusts the issuer of this one's, nothing secret is
// needed.
func TestRemoteTargetByTrust(t *testing.T) {
	n := shared(t).remote(t)
	n.trusted(t)
	n.connection(t, nil)
	revision := n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	there := n.there.Audit(t)
	n.stageSet(t, "app", byConnection+oneStage("app"))
	n.waitReady(t, "app", "app", revision)
	n.there.WaitFor(t, n.configMap("a"))
	n.absent(t, n.configMap("a"))

	account := "system:serviceaccount:" + n.namespace + ":" + deployer
	allAs(t, account, there.Since(t, func(e cluster.AuditEvent) bool { return e.User == issuedHere+account }))

	// What is deleted there later is what the inventory says.
	n.delete(t, "app")
	n.gone(t, "app")
	n.there.WaitGone(t, n.configMap("a"))
}

// allAs wants requests, each of which impersonates the user.
func allAs(t testing.TB, user string, requests []cluster.AuditEvent) {
	t.Helper()
	if len(requests) == 0 {
		t.Errorf("nothing was asked for as %s", user)
	}
	for _, request := range requests {
		if request.Impersonated != user {
			t.Errorf("%s %s was asked for as %q, want %s", request.Verb, request.URI, request.Impersonated, user)
		}
	}
}

// Every key that is wrong is named, and a ConfigMap that is mended is read again.
func TestConfigMapsThatLeadNowhere(t *testing.T) {
	n := shared(t).remote(t)
	n.trusted(t)
	n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	n.stageSet(t, "app", byConnection+oneStage("app"))
	for _, step := range []struct {
		set          map[string]string
		reason, want string
	}{
		{
			map[string]string{"provider": "", "addres": "a", "ca.crt": "b"}, v1.ReasonInvalidSpec,
			"addres is not a key that there is: use provider, cluster, address, ca.crt, audiences, serviceAccountName; " +
				"provider is not set: set it to one of aws, azure, gcp, generic; ca.crt has no certificate in PEM",
		},
		{map[string]string{"serviceAccountName": ""}, v1.ReasonAccessDenied, "serviceAccountName is not set"},
		// The role edit lets the account impersonate every other one in its namespace.
		{map[string]string{"serviceAccountName": "nobody"}, v1.ReasonServiceAccountNotFound, "/nobody does not exist"},
		{map[string]string{"audiences": "https://kubernetes.default.svc"}, v1.ReasonInvalidSpec, "audiences has"},
		{map[string]string{"audiences": "somebody-else"}, v1.ReasonTargetUnreachable, "does not accept the credentials"},
	} {
		n.connection(t, step.set)
		cluster.Eventually(t, func(context.Context) error {
			if message := n.waitRefused(t, "app", step.reason); !strings.Contains(message, step.want) {
				return fmt.Errorf("the message lacks %q:\n%s", step.want, message)
			}
			return nil
		})
	}
	n.connection(t, nil)
	n.there.WaitFor(t, n.configMap("a"))
}
