// Package clouds stands in for the servers of cloud providers, at their own names: it is a proxy that connects to none
// of them and answers itself, with certificates of its own authority. A program goes there with HTTPS_PROXY and
// SSL_CERT_FILE.
//
// It knows no more of a provider than what is asked to get from the token of a ServiceAccount into a cluster.
package clouds

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// Clouds are the stand-ins of all providers. Safe for concurrent use.
type Clouds struct {
	// Environment are the variables, NAME=value, that lead a program here.
	Environment []string
	// Machine is the URL of what gives programs on a machine credentials, of which there are none here.
	Machine string

	// cluster is where the cluster of every provider is, and ca what it is verified by.
	cluster, ca string
	authority   *x509.Certificate
	key         *ecdsa.PrivateKey
	handlers    map[string]http.HandlerFunc

	mu sync.Mutex
	// identities are the tokens of ServiceAccounts that were shown.
	identities []string
	// sent is everything that the providers were sent, and elsewhere what was asked for of anybody else.
	sent, elsewhere []string
	// denied has the providers refuse every identity.
	denied bool
	// stalled has the metadata service say nothing.
	stalled bool
}

// Start serves until the end of the test. All providers say that the cluster is at the URL, verified by the CA in PEM.
func Start(t testing.TB, cluster string, ca []byte) *Clouds {
	t.Helper()
	c := &Clouds{cluster: cluster, ca: string(ca)}
	c.handlers = map[string]http.HandlerFunc{}
	for _, provider := range []map[string]http.HandlerFunc{c.aws(), c.gcp(), c.azure()} {
		maps.Copy(c.handlers, provider)
	}
	c.makeAuthority(t)
	server := httptest.NewServer(http.HandlerFunc(c.connect))
	t.Cleanup(server.Close)
	bundle := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(bundle, encode(c.authority.Raw), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Machine = server.URL
	c.Environment = []string{
		"HTTPS_PROXY=" + server.URL, "SSL_CERT_FILE=" + bundle, "GCE_METADATA_HOST=" + server.Listener.Addr().String(),
	}
	return c
}

// Identities are the tokens of ServiceAccounts that were shown to the providers.
func (c *Clouds) Identities() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.identities...)
}

// Sent is everything that the providers were sent: what each request looked like, with its body.
func (c *Clouds) Sent() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.sent)
}

// Elsewhere is what was asked for of anybody else: other servers, and the machine, but for what it says about itself.
func (c *Clouds) Elsewhere() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.elsewhere)
}

// noting keeps what the handler of a host is sent.
func (c *Clouds) noting(host string, handler http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		dump, err := httputil.DumpRequest(r, true)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		c.sent = append(c.sent, host+": "+string(dump))
		c.mu.Unlock()
		handler(w, r)
	}
}

// Forget forgets the tokens that were shown.
func (c *Clouds) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.identities = nil
}

// Deny has the providers refuse every identity from now on, or no longer.
func (c *Clouds) Deny(denied bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.denied = denied
}

// Stall has the metadata service take requests and not answer them from now on, or no longer.
func (c *Clouds) Stall(stalled bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stalled = stalled
}

func (c *Clouds) stalls() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stalled
}

// shown remembers the token of a ServiceAccount, and says whether it is good for something.
func (c *Clouds) shown(token string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.identities = append(c.identities, token)
	return !c.denied
}

// connect is the proxy, and the metadata service of a machine of GCP.
func (c *Clouds) connect(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && gcpMetadata[r.URL.Path] != "" {
		if c.stalls() {
			<-r.Context().Done()
		}
		_, _ = io.WriteString(w, gcpMetadata[r.URL.Path])
		return
	}
	host, _, err := net.SplitHostPort(r.Host)
	handler, known := c.handlers[host]
	if r.Method != http.MethodConnect || err != nil || !known {
		c.mu.Lock()
		c.elsewhere = append(c.elsewhere, r.Method+" "+r.URL.String()+" of "+r.Host)
		c.mu.Unlock()
		http.Error(w, "no way to "+r.Host, http.StatusForbidden)
		return
	}
	w.WriteHeader(http.StatusOK)
	connection, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = connection.Close() }()
	certificate, err := c.certificate(host)
	if err != nil {
		return
	}
	secured := tls.Server(&unread{Conn: connection, reader: buffered.Reader},
		&tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	// One connection, until the client ends it.
	listener := &single{connection: secured, done: make(chan struct{})}
	_ = (&http.Server{Handler: c.noting(host, handler), ConnState: listener.watch}).Serve(listener)
}

// unread is a connection of which something may have been read ahead.
type unread struct {
	net.Conn

	reader *bufio.Reader
}

func (u *unread) Read(p []byte) (int, error) { return u.reader.Read(p) }

// single is a listener with one connection; it ends with it.
type single struct {
	mu         sync.Mutex
	connection net.Conn
	done       chan struct{}
}

// Accept implements net.Listener.
func (s *single) Accept() (net.Conn, error) {
	s.mu.Lock()
	connection := s.connection
	s.connection = nil
	s.mu.Unlock()
	if connection != nil {
		return connection, nil
	}
	<-s.done
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (s *single) Close() error { return nil }

// Addr implements net.Listener.
func (s *single) Addr() net.Addr { return &net.TCPAddr{} }

func (s *single) watch(_ net.Conn, state http.ConnState) {
	if state == http.StateClosed || state == http.StateHijacked {
		close(s.done)
	}
}

// makeAuthority makes what the certificates are signed by.
func (c *Clouds) makeAuthority(t testing.TB) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if c.authority, err = x509.ParseCertificate(raw); err != nil {
		t.Fatal(err)
	}
	c.key = key
}

// certificate is one for a host.
func (c *Clouds) certificate(host string) (tls.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{host},
		NotBefore: c.authority.NotBefore, NotAfter: c.authority.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, c.authority, c.key.Public(), c.key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: c.key}, nil
}

func encode(certificate []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
}

// answer is one in JSON.
func answer(w http.ResponseWriter, code int, content any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(content)
}

// bears tells whether a request comes with a token.
func bears(r *http.Request, token string) bool {
	return r.Header.Get("Authorization") == "Bearer "+token
}

// LetsIn tells whether the cluster of a provider takes the token.
func (c *Clouds) LetsIn(token string) bool {
	return token == gcpToken || token == azureToken || letsInAWS(token)
}
