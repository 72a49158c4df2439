package e2e

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/clouds"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

// cloudOf is what a tenant writes down to get into a cluster of a cloud.
var cloudOf = map[string]struct {
	cluster     string
	annotations map[string]string
	audience    string // of the token that the cloud is shown
}{
	"aws": {clouds.AWSCluster, map[string]string{"eks.amazonaws.com/role-arn": clouds.AWSRole}, "sts.amazonaws.com"},
	"azure": {
		clouds.AzureCluster, map[string]string{
			"azure.workload.identity/tenant-id": clouds.AzureTenant, "azure.workload.identity/client-id": clouds.AzureClient,
		}, "api://AzureADTokenExchange",
	},
	"gcp": {
		clouds.GCPCluster, map[string]string{
			"gcp.auth.fluxcd.io/workload-identity-provider": clouds.GCPProvider,
			"iam.gke.io/gcp-service-account":                clouds.GCPIdentity,
		}, "//iam.googleapis.com/" + clouds.GCPProvider,
	},
}

// clouded is a tenant whose other cluster takes tokens of the clouds.
type clouded struct {
	*remote
	clouds *clouds.Clouds
	// strangers counts requests to the cluster with tokens that no cloud gives for an account.
	strangers atomic.Int32
}

// ambient is in all credentials that the reconciler's own surroundings hold.
const ambient = "AMBIENT"

// surroundings are what each cloud would give programs of its own to find credentials by: variables, files, and the machine.
func (n *clouded) surroundings(t *testing.T) []string {
	t.Helper()
	files := writeFiles(t, map[string]string{
		"token": ambient + "-token",
		"aws":   "[default]\naws_access_key_id = " + ambient + "-file\naws_secret_access_key = " + ambient + "-file\n",
		"gcp": `{"type": "external_account", "audience": "` + ambient + `-audience", "token_url": "https://sts.googleapis.com/v1/token",` +
			`"subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "credential_source": {"file": "TOKEN"}}`,
	})
	credentials := filepath.Join(files, "gcp")
	text, err := os.ReadFile(credentials)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte("TOKEN"), []byte(filepath.Join(files, "token")))
	if err := os.WriteFile(credentials, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{
		"AWS_ACCESS_KEY_ID=" + ambient + "-key", "AWS_SECRET_ACCESS_KEY=" + ambient + "-secret",
		"AWS_SESSION_TOKEN=" + ambient + "-session", "AWS_SHARED_CREDENTIALS_FILE=" + filepath.Join(files, "aws"),
		"AWS_WEB_IDENTITY_TOKEN_FILE=" + filepath.Join(files, "token"), "AWS_ROLE_ARN=" + clouds.AWSRole,
		"AWS_CONTAINER_CREDENTIALS_FULL_URI=" + n.clouds.Machine + "/aws",
		"AWS_EC2_METADATA_SERVICE_ENDPOINT=" + n.clouds.Machine,
		"AZURE_TENANT_ID=" + clouds.AzureTenant, "AZURE_CLIENT_ID=" + clouds.AzureClient,
		"AZURE_CLIENT_SECRET=" + ambient + "-secret", "AZURE_FEDERATED_TOKEN_FILE=" + filepath.Join(files, "token"),
		"IDENTITY_ENDPOINT=" + n.clouds.Machine + "/azure", "IDENTITY_HEADER=" + ambient + "-header",
		"GOOGLE_APPLICATION_CREDENTIALS=" + credentials,
	}
}

// newClouded starts a reconciler whose way to all clouds leads to stand-ins.
func newClouded(t *testing.T) *clouded {
	t.Helper()
	n := &clouded{remote: setup(t).remote(t)}
	// The other cluster knows nobody of the clouds. Who stands before it lets their tokens in, as the user of kubeconfigs.
	hubs := n.there.TokenConfig(t, "default", hub)
	transport, err := rest.TransportFor(hubs)
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(hubs.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Transport: transport, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Header.Del("Authorization")
		},
	}
	front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !n.clouds.LetsIn(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")) {
			if calls := r.URL.Path == "/readyz" && r.Header.Get("Authorization") == ""; !calls {
				n.strangers.Add(1)
			}
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	front.Config.ErrorLog = log.New(io.Discard, "", 0)
	front.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	front.StartTLS()
	t.Cleanup(front.Close)
	n.clouds = clouds.Start(t, front.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw}))
	options := reconcilerOptions(t, n.Cluster, "127.0.0.1")
	options.Env = append(n.surroundings(t), n.clouds.Environment...)
	process.Start(t, options)
	return n
}

// write makes, or changes, an object of the tenant.
func (n *clouded) write(t testing.TB, kind, name, field string, content map[string]string, metadata map[string]any) {
	t.Helper()
	all := map[string]any{"name": name, "namespace": n.namespace}
	for key, value := range metadata {
		all[key] = value
	}
	object := map[string]any{"apiVersion": "v1", "kind": kind, "metadata": all}
	if field != "" {
		object[field] = content
	}
	text, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	n.Apply(t, string(text))
}

// What a token of a ServiceAccount is exchanged for leads into the cluster, which the cloud tells the address and the CA of.
func TestRemoteTargetsOfClouds(t *testing.T) {
	n := newClouded(t)
	for provider, of := range cloudOf {
		t.Run(provider, func(t *testing.T) {
			n.clouds.Forget()
			n.write(t, "ServiceAccount", provider, "", nil, map[string]any{"annotations": of.annotations})
			n.write(t, "ConfigMap", "connection", "data", map[string]string{
				"provider": provider, "cluster": of.cluster, "serviceAccountName": provider,
			}, nil)
			revision := n.source(t, provider, map[string]string{"a.yaml": configMap(provider, "1")})
			n.stageSet(t, provider, byConnection+oneStage(provider))
			n.waitReady(t, provider, provider, revision)
			n.there.WaitFor(t, n.configMap(provider))
			n.shown(t, "system:serviceaccount:"+n.namespace+":"+provider, of.audience)
			n.delete(t, provider)
			n.gone(t, provider)
			n.there.WaitGone(t, n.configMap(provider))
		})
	}

	// The attack of a ConfigMap that names no account, and of an account that is nobody to the cloud: there is nobody else whose
	// identity would be used.
	for provider, of := range cloudOf {
		n.clouds.Forget()
		unnamed := map[string]string{"provider": provider, "cluster": of.cluster}
		n.write(t, "ConfigMap", "connection", "data", unnamed, nil)
		n.stageSet(t, "nobody", byConnection+oneStage("aws"))
		n.wait(t, "nobody", cluster.Condition(v1.ConditionReady, "False", v1.ReasonAccessDenied), messageHas(notNamed))
		if shown := n.clouds.Identities(); len(shown) > 0 {
			t.Errorf("%s was shown %d tokens, want none", provider, len(shown))
		}
		unnamed["serviceAccountName"] = deployer
		n.write(t, "ConfigMap", "connection", "data", unnamed, nil)
		n.wait(t, "nobody", cluster.Condition(v1.ConditionReady, "False"), func(set *unstructured.Unstructured) error {
			if messageHas(notNamed)(set) == nil {
				return errors.New("the account has not been tried yet")
			}
			return nil
		})
		n.delete(t, "nobody")
		n.gone(t, "nobody")
	}
	// That of a cloud that is asked with a token for the API server here.
	n.write(t, "ConfigMap", "connection", "data", map[string]string{
		"provider": "aws", "cluster": clouds.AWSCluster, "serviceAccountName": "aws",
		"audiences": "https://kubernetes.default.svc",
	}, nil)
	n.clouds.Forget()
	n.stageSet(t, "nobody", byConnection+oneStage("aws"))
	if message := n.waitRefused(t, "nobody", v1.ReasonInvalidSpec); !strings.Contains(message, "audiences has") {
		t.Errorf("the message is %q", message)
	}
	if shown := n.clouds.Identities(); len(shown) > 0 {
		t.Errorf("clouds were shown %d tokens, want none", len(shown))
	}

	n.Apply(t, documentedYAML(t, "multi-cluster.md", "provider: aws", "team-a", n.namespace))
	revision := n.source(t, "documented", map[string]string{"a.yaml": configMap("documented", "1")})
	n.stageSet(t, "documented", strings.Replace(byConnection, "connection", "production", 1)+oneStage("documented"))
	n.waitReady(t, "documented", "documented", revision)
	n.there.WaitFor(t, n.configMap("documented"))
	n.ambientIsNotUsed(t)
}

// notNamed is what a ConfigMap lacks that names no account.
const notNamed = "serviceAccountName is not set"

// ambientIsNotUsed checks that nothing of the reconciler's surroundings was sent to anybody, nor looked for at other places.
func (n *clouded) ambientIsNotUsed(t *testing.T) {
	t.Helper()
	sent := n.clouds.Sent()
	for _, provider := range []string{"sts.eu-central-1.amazonaws.com", "login.microsoft", "sts.googleapis.com"} {
		if !slices.ContainsFunc(sent, func(request string) bool { return strings.HasPrefix(request, provider) }) {
			t.Errorf("nothing of %d requests was sent to %s", len(sent), provider)
		}
	}
	for _, request := range sent {
		if strings.Contains(request, ambient) {
			t.Errorf("what the surroundings hold was sent:\n%s", request)
		}
	}
	if elsewhere := n.clouds.Elsewhere(); len(elsewhere) > 0 {
		t.Errorf("others were asked too: %q", elsewhere)
	}
	if strangers := n.strangers.Load(); strangers > 0 {
		t.Errorf("the cluster was shown %d tokens that no cloud gives for an account", strangers)
	}
}

// shown checks that clouds were shown tokens of one account for one audience, and no others.
func (n *clouded) shown(t *testing.T, subject, audience string) {
	t.Helper()
	tokens := n.clouds.Identities()
	if len(tokens) == 0 {
		t.Error("no cloud was shown a token")
	}
	for _, token := range tokens {
		parts := strings.Split(token, ".")
		if len(parts) != 3 {
			t.Fatalf("a cloud was shown something that is no token of an account")
		}
		payload, err := base64.RawURLEncoding.DecodeString(parts[1])
		if err != nil {
			t.Fatal(err)
		}
		var read struct {
			Subject   string   `json:"sub"`
			Audiences []string `json:"aud"`
		}
		if err := json.Unmarshal(payload, &read); err != nil {
			t.Fatal(err)
		}
		if read.Subject != subject || !slices.Equal(read.Audiences, []string{audience}) {
			t.Errorf("a cloud was shown a token of %s for %s, want %s for %s", read.Subject, read.Audiences, subject, audience)
		}
	}
}
