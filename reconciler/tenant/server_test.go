package tenant_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/stageset/stageset/reconciler/tenant"
)

var (
	configMap = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	deployer  = tenant.Account{Namespace: "payments", Name: "deployer"}
	start     = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

// faulty stands in for an API server that does what a real one cannot be made to do. It issues tokens "1", "2" … (in the
// issuer's claim), serves discovery of the core group and hands everything else to serve.
type faulty struct {
	*httptest.Server
	t testing.TB

	// mint, if set, answers a token request itself; n counts from 1.
	mint func(w http.ResponseWriter, r *http.Request, n int)
	// life of the tokens; an hour if it is zero.
	life time.Duration
	// audience of the tokens, which is not their issuer.
	audience string
	// own lets requests of tenants come with the reconciler's own token.
	own bool
	// serve answers requests that are neither for tokens nor for /api/v1; token is the number of the token they came with,
	// or "own".
	serve func(w http.ResponseWriter, r *http.Request, token string)

	mu       sync.Mutex
	mints    int
	requests []request
}

// request is what the server saw; the mint requests are not among them.
type request struct{ Method, Path, Token, Body string }

func newFaulty(t testing.TB) *faulty {
	t.Helper()
	server := &faulty{t: t, life: time.Hour}
	server.Server = httptest.NewUnstartedServer(server)
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.Server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

func (s *faulty) config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return &rest.Config{Host: s.URL, BearerToken: "own", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

func (s *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	bearer := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if strings.HasSuffix(r.URL.Path, "/token") {
		if bearer != "own" {
			s.t.Errorf("a token was requested with %q, want the reconciler's own", bearer)
		}
		s.issue(w, r)
		return
	}
	token := issuer(bearer)
	if s.own && bearer == "own" {
		token = bearer
	}
	if token == "" {
		s.t.Errorf("%s %s came with %q, want a tenant's token", r.Method, r.URL.Path, bearer)
	}
	if r.URL.Path == "/api/v1" {
		answer(w, http.StatusOK, `{"kind":"APIResourceList","resources":[
			{"name":"configmaps","kind":"ConfigMap","namespaced":true},
			{"name":"secrets","kind":"Secret","namespaced":true},
			{"name":"nodes","kind":"Node","namespaced":false},
			{"name":"configmaps/parts","kind":"Part","namespaced":true}]}`)
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, request{Method: r.Method, Path: r.URL.RequestURI(), Token: token, Body: string(body)})
	s.mu.Unlock()
	if s.serve == nil {
		answer(w, http.StatusOK, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"app","namespace":"payments"}}`)
		return
	}
	s.serve(w, r, token)
}

func (s *faulty) issue(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.mints++
	n := s.mints
	s.mu.Unlock()
	if s.mint != nil {
		s.mint(w, r, n)
		return
	}
	s.token(w, r, n)
}

// token answers with the token of a number for the account in the path.
func (s *faulty) token(w http.ResponseWriter, r *http.Request, n int) {
	segments := strings.Split(r.URL.Path, "/")
	namespace, name := segments[4], segments[6]
	// The server's clock is a day ahead of ours: that must not matter.
	issued := start.Add(24 * time.Hour)
	payload, err := json.Marshal(map[string]any{
		"iss": fmt.Sprint(n), "aud": s.audience, "iat": issued.Unix(),
		"kubernetes.io": map[string]any{
			"namespace": namespace, "serviceaccount": map[string]any{"name": name, "uid": fmt.Sprintf("uid-%d", n)},
		},
	})
	if err != nil {
		s.t.Error(err)
	}
	jwt := "e30." + base64.RawURLEncoding.EncodeToString(payload) + ".c2ln"
	answer(w, http.StatusCreated, fmt.Sprintf(
		`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","status":{"token":%q,"expirationTimestamp":%q}}`,
		jwt, issued.Add(s.life).Format(time.RFC3339)))
}

func (s *faulty) minted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mints
}

func (s *faulty) seen() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]request(nil), s.requests...)
}

// issuer reads the number of a token.
func issuer(bearer string) string {
	parts := strings.Split(bearer, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct{ Iss string }
	if json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	return claims.Iss
}

func answer(w http.ResponseWriter, code int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, body)
}

func status(w http.ResponseWriter, code int, reason, message string) {
	answer(w, code, fmt.Sprintf(
		`{"apiVersion":"v1","kind":"Status","status":"Failure","code":%d,"reason":%q,"message":%q,"details":{"name":"app"}}`,
		code, reason, message))
}

func newClients(t testing.TB, options tenant.Options) *tenant.Clients {
	t.Helper()
	if options.Clock == nil {
		options.Clock = clocktesting.NewFakePassiveClock(start)
	}
	clients, err := tenant.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return clients
}

func clientFor(t testing.TB, clients *tenant.Clients, account tenant.Account) *tenant.Client {
	t.Helper()
	client, err := clients.Target(t.Context(), tenant.Destination{}, account)
	if err != nil {
		t.Fatalf("client for %s: %v", account, err)
	}
	return client
}

// get is the simplest request.
func get(ctx context.Context, client *tenant.Client) error {
	_, err := client.Get(ctx, configMap, "payments", "app")
	return err
}
