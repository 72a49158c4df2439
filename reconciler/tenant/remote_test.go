package tenant_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
	"github.com/stageset/stageset/reconciler/dial"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/tenant"
)

// loopback is a dialer that admits the servers of tests.
func loopback() *dial.Dialer { return dial.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}) }

// elsewhere stands in for the API server of another cluster.
type elsewhere struct {
	*httptest.Server
	// connections counts those that were ever made, and open those that are.
	connections, open atomic.Int64
	// forbids refuses all that is not about kinds.
	forbids atomic.Bool
	// silent keeps all that is not about kinds from being answered until it is closed, if it is not nil.
	silent     chan struct{}
	unanswered atomic.Int64

	mu   sync.Mutex
	seen []asked
}

// asked is who another cluster was asked by, and as whom.
type asked struct{ Authorization, Impersonated string }

func newElsewhere(t testing.TB) *elsewhere {
	t.Helper()
	return startElsewhere(t, func(*httptest.Server) {})
}

// startElsewhere lets configure change the server before it starts.
func startElsewhere(t testing.TB, configure func(*httptest.Server)) *elsewhere {
	t.Helper()
	e := &elsewhere{}
	e.Server = httptest.NewUnstartedServer(e)
	configure(e.Server)
	e.EnableHTTP2 = true
	e.Config.ErrorLog = log.New(io.Discard, "", 0)
	e.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			e.connections.Add(1)
			e.open.Add(1)
		case http.StateClosed, http.StateHijacked:
			e.open.Add(-1)
		}
	}
	e.StartTLS()
	t.Cleanup(func() {
		e.CloseClientConnections()
		e.Close()
	})
	return e
}

func (e *elsewhere) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	e.seen = append(e.seen, asked{r.Header.Get("Authorization"), r.Header.Get("Impersonate-User")})
	e.mu.Unlock()
	if strings.HasSuffix(r.URL.Path, "/api/v1") {
		answer(w, http.StatusOK,
			`{"kind":"APIResourceList","resources":[{"name":"configmaps","kind":"ConfigMap","namespaced":true}]}`)
		return
	}
	if e.silent != nil {
		e.unanswered.Add(1)
		<-e.silent
	}
	if e.forbids.Load() {
		status(w, http.StatusForbidden, "Forbidden", "not for you")
		return
	}
	answer(w, http.StatusOK, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"app","namespace":"payments"}}`)
}

// askers are those who asked so far, each once.
func (e *elsewhere) askers() map[asked]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	askers := map[asked]bool{}
	for _, one := range e.seen {
		askers[one] = true
	}
	return askers
}

func (e *elsewhere) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: e.Certificate().Raw})
}

// kubeconfig has YAML of the fields of its cluster and of its user.
func kubeconfig(cluster, user string) string {
	return "{clusters: [{name: a, cluster: {" + cluster + "}}], users: [{name: b, user: {" + user + "}}], " +
		"contexts: [{name: c, context: {cluster: a, user: b}}], current-context: c}"
}

// at are the fields of a cluster that is reached at a URL and verified by a CA.
func at(url string, ca []byte) string {
	return fmt.Sprintf("server: %q, certificate-authority-data: %s", url, base64.StdEncoding.EncodeToString(ca))
}

// hub is a reconciler with a Secret that holds a kubeconfig.
type hub struct {
	*tenant.Clients
	clock *clocktesting.FakePassiveClock
	// config is the kubeconfig in the Secret; empty if there is no Secret.
	config atomic.Value
}

func newHub(t testing.TB, dialer *dial.Dialer) *hub {
	t.Helper()
	return hubOf(t, newFaulty(t), tenant.Options{Dialer: dialer})
}

func hubOf(t testing.TB, server *faulty, options tenant.Options) *hub {
	t.Helper()
	h := &hub{clock: clocktesting.NewFakePassiveClock(start)}
	h.config.Store("")
	server.serve = func(w http.ResponseWriter, r *http.Request, _ string) {
		config := h.config.Load().(string)
		if r.URL.Path != "/api/v1/namespaces/payments/secrets/remote" || config == "" {
			status(w, http.StatusNotFound, "NotFound", "there is none")
			return
		}
		answer(w, http.StatusOK, fmt.Sprintf(
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"remote"},"data":{"value":%q}}`,
			base64.StdEncoding.EncodeToString([]byte(config))))
	}
	options.Config, options.Clock = server.config(), h.clock
	h.Clients = newClients(t, options)
	return h
}

// remote is where the Secret leads.
var remote = tenant.Reference{
	Reader: deployer, KubeConfig: v1.InventoryKubeConfig{Kind: v1.KubeConfigSecret, Name: "remote"},
}

// client acts as the account on the cluster that the Secret leads to now.
func (h *hub) client(ctx context.Context) (*tenant.Client, error) {
	to, err := h.Destination(ctx, remote)
	if err != nil {
		return nil, err
	}
	return h.Target(ctx, to, deployer)
}

// ask sends a request to the cluster that the Secret leads to now.
func (h *hub) ask(ctx context.Context) error {
	client, err := h.client(ctx)
	if err != nil {
		return err
	}
	return tenant.Explain(get(ctx, client), "ask", tenant.Reasons{})
}

// T-16: the kubeconfig's user asks, to be taken for the account by its whole name; the reconciler's and the tenant's own
// tokens stay here.
func TestAnotherClusterIsAskedAsTheAccount(t *testing.T) {
	there := newElsewhere(t)
	h := newHub(t, loopback())
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("hub:pass"))
	for user, authorization := range map[string]string{"token: t": "Bearer t", "username: hub, password: pass": basic} {
		h.config.Store(kubeconfig(at(there.URL, there.ca()), user))
		if err := h.ask(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := asked{authorization, "system:serviceaccount:payments:deployer"}
		if !there.askers()[want] {
			t.Errorf("asked by %v, want %v", there.askers(), want)
		}
	}
	if got := len(there.askers()); got != 2 {
		t.Errorf("asked by %v, want nobody else", there.askers())
	}
}

// What inventories record, and policies are told.
func TestWhatADestinationIsCalled(t *testing.T) {
	there := newElsewhere(t)
	h := newHub(t, loopback())
	h.config.Store(kubeconfig(at(there.URL+"/", there.ca()), "token: t"))
	to, err := h.Destination(t.Context(), remote)
	if err != nil {
		t.Fatal(err)
	}
	client, err := h.Target(t.Context(), to, deployer)
	if err != nil {
		t.Fatal(err)
	}
	facts := tenant.Facts{Remote: true, Server: there.URL, ServiceAccountName: "deployer"}
	if diff := cmp.Diff(facts, client.Facts()); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
	recorded := to.Target("deployer")
	if len(recorded.Cluster) != 64 || recorded.KubeConfig != remote.KubeConfig || recorded.ServiceAccountName != "deployer" {
		t.Errorf("recorded %+v", recorded)
	}
	again, err := h.Destination(t.Context(), tenant.Recorded(deployer, recorded))
	if err != nil || again.Cluster() != to.Cluster() {
		t.Errorf("the record leads to %s, %v", again.Cluster(), err)
	}

	var local tenant.Destination
	want := v1.InventoryTarget{Cluster: v1.ClusterLocal, ServiceAccountName: "deployer"}
	if diff := cmp.Diff(want, local.Target("deployer")); diff != "" {
		t.Errorf("recorded of the own cluster (-want +got):\n%s", diff)
	}
}

// What is recorded leads nowhere any more, or to another server: nothing is asked there.
func TestReferencesThatAreGone(t *testing.T) {
	there := newElsewhere(t)
	h := newHub(t, loopback())
	recorded := tenant.Recorded(deployer, v1.InventoryTarget{Cluster: "5f1c", KubeConfig: remote.KubeConfig})
	for name, config := range map[string]string{
		"no Secret": "", "another server": kubeconfig(at(there.URL, there.ca()), "token: t"),
	} {
		h.config.Store(config)
		_, err := h.Destination(t.Context(), recorded)
		if failed := failure.From(err); !errors.Is(err, tenant.ErrGone) || failed.Reason != v1.ReasonKubeConfigInvalid {
			t.Errorf("%s: %s: %v", name, failed.Reason, err)
		}
	}
	h.config.Store("nonsense")
	if _, err := h.Destination(t.Context(), recorded); errors.Is(err, tenant.ErrGone) {
		t.Errorf("a kubeconfig that cannot be read may be mended: %v", err)
	}
	if seen := there.askers(); len(seen) > 0 {
		t.Errorf("asked by %v", seen)
	}
}

// The attack of a kubeconfig that leads to the reconciler's own machine, by address, by name, and by a proxy that would
// connect there.
func TestKubeconfigsThatLeadToTheReconciler(t *testing.T) {
	there := newElsewhere(t)
	h := newHub(t, dial.New(nil))
	port := there.URL[strings.LastIndex(there.URL, ":"):]
	for name, tc := range map[string]struct{ cluster, want string }{
		"address":       {at(there.URL, there.ca()), "its server: address 127.0.0.1 is a loopback address"},
		"name":          {at("https://localhost"+port, there.ca()), "its server: address 127.0.0.1 is a loopback address"},
		"metadata":      {at("https://169.254.169.254", nil), "its server: address 169.254.169.254 is a link-local address"},
		"by a proxy":    {at(there.URL, there.ca()) + ", proxy-url: 'http://10.0.0.1:3128'", "its server: address 127.0.0.1 is"},
		"a local proxy": {at("https://10.0.0.1", nil) + ", proxy-url: 'http://127.0.0.1:3128'", "its proxy-url: address 127."},
	} {
		h.config.Store(kubeconfig(tc.cluster, "token: t"))
		err := h.ask(t.Context())
		if failed := failure.From(err); failed.Reason != v1.ReasonKubeConfigInvalid || !strings.Contains(failed.Error(), tc.want) {
			t.Errorf("%s: %s: %v, want %q", name, failed.Reason, err, tc.want)
		}
	}
	if there.connections.Load() > 0 {
		t.Error("it was connected to")
	}
}

// T-27: who has another CA is not asked, and what a new Secret says counts at once.
func TestWrongCA(t *testing.T) {
	there := newElsewhere(t)
	h := newHub(t, loopback())
	stranger, _ := certificate(t)
	h.config.Store(kubeconfig(at(there.URL, stranger), "token: t"))
	err := h.ask(t.Context())
	if failed := failure.From(err); failed.Reason != v1.ReasonTargetUnreachable || failed.Kind != failure.Transient ||
		!strings.Contains(failed.Error(), there.URL+": the certificate of the API server is not trusted") {
		t.Errorf("%s: %v", failed.Reason, err)
	}
	if seen := there.askers(); len(seen) > 0 {
		t.Errorf("asked by %v", seen)
	}
	h.config.Store(kubeconfig(at(there.URL, there.ca()), "token: t"))
	if err := h.ask(t.Context()); err != nil {
		t.Errorf("with the right CA: %v", err)
	}
}

// A server that is set up anew, with a certificate of another CA, is not asked until the Secret has that CA.
func TestRotatedCA(t *testing.T) {
	address := freeAddress(t)
	there := elsewhereAt(t, address)
	h := newHub(t, loopback())
	h.config.Store(kubeconfig(at(there.URL, there.ca()), "token: t"))
	if err := h.ask(t.Context()); err != nil {
		t.Fatal(err)
	}
	there.CloseClientConnections()
	there.Close()

	again := elsewhereAt(t, address)
	err := h.ask(t.Context())
	if failed := failure.From(err); failed.Reason != v1.ReasonTargetUnreachable || failed.Kind != failure.Transient ||
		!strings.Contains(failed.Error(), "the certificate of the API server is not trusted") {
		t.Errorf("with the CA that was: %s: %v", failed.Reason, err)
	}
	if seen := again.askers(); len(seen) > 0 {
		t.Errorf("asked by %v", seen)
	}
	h.config.Store(kubeconfig(at(again.URL, again.ca()), "token: t"))
	if err := h.ask(t.Context()); err != nil {
		t.Errorf("with the new CA: %v", err)
	}
}

// freeAddress is one that nobody is given by chance while nobody listens there.
func freeAddress(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", process.FreePort(t))
}

// elsewhereAt listens at an address, with a certificate that nobody else has.
func elsewhereAt(t testing.TB, address string) *elsewhere {
	t.Helper()
	return startElsewhere(t, func(server *httptest.Server) {
		pair, err := tls.X509KeyPair(certificate(t))
		if err != nil {
			t.Fatal(err)
		}
		server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
		if err := server.Listener.Close(); err != nil {
			t.Fatal(err)
		}
		if server.Listener, err = net.Listen("tcp", address); err != nil {
			t.Fatal(err)
		}
	})
}

// Two hundred rotations leave nothing behind: all tokens share a connection.
func TestRotatedCredentials(t *testing.T) {
	there := newElsewhere(t)
	h := newHub(t, loopback())
	const rotations = 200
	h.config.Store(kubeconfig(at(there.URL, there.ca()), "token: first"))
	if err := h.ask(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	for i := range rotations {
		h.config.Store(kubeconfig(at(there.URL, there.ca()), fmt.Sprintf("token: t%d", i)))
		if err := h.ask(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(there.askers()); got != rotations+1 {
		t.Errorf("%d tokens were used, want each", got)
	}
	if made := there.connections.Load(); made != 1 {
		t.Errorf("%d connections, want 1 for all tokens", made)
	}
	if after := runtime.NumGoroutine(); after > before+rotations/10 {
		t.Errorf("%d goroutines, %d before the rotations", after, before)
	}
}

// The connections of client certificates that were replaced are closed, the oldest first.
func TestRotatedClientCertificates(t *testing.T) {
	there := newElsewhere(t)
	h := newHub(t, loopback())
	const rotations, most = 600, 512
	for range rotations {
		certificate, key := certificate(t)
		h.config.Store(kubeconfig(at(there.URL, there.ca()), fmt.Sprintf("client-certificate-data: %s, client-key-data: %s",
			base64.StdEncoding.EncodeToString(certificate), base64.StdEncoding.EncodeToString(key))))
		if err := h.ask(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if made := there.connections.Load(); made != rotations {
		t.Errorf("%d connections were made, want one for each certificate", made)
	}
	cluster.Eventually(t, func(context.Context) error {
		if open := there.open.Load(); open > most {
			return fmt.Errorf("%d connections are open, want %d at most", open, most)
		}
		return nil
	})
}

// certificate is a certificate of nobody but itself with its key, in PEM. It is good for a server on this machine, too.
func certificate(t testing.TB) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	made, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, bytes []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes})
	}
	return block("CERTIFICATE", made), block("PRIVATE KEY", encoded)
}

// T-25: a server that is gone is TargetUnreachable, and one that comes back is found again.
func TestDeadServer(t *testing.T) {
	address := freeAddress(t)
	there := elsewhereAt(t, address)
	h := newHub(t, loopback())
	h.config.Store(kubeconfig(at(there.URL, there.ca()), "token: t"))
	there.CloseClientConnections()
	there.Close()
	pass := (&tenant.Pass{}).Context(t.Context())
	err := h.ask(pass)
	if failed := failure.From(err); failed.Reason != v1.ReasonTargetUnreachable || failed.Kind != failure.Transient ||
		!strings.Contains(err.Error(), there.URL+": dial "+address+": connect: connection refused") {
		t.Fatalf("%s: %v", failed.Reason, err)
	}
	back := elsewhereAt(t, address)
	h.config.Store(kubeconfig(at(back.URL, back.ca()), "token: t"))
	if err := h.ask(pass); err != nil {
		t.Errorf("when it is back: %v", err)
	}
}

// T-25: who has waited in vain for another cluster's answer does not wait for the next one, nor does who comes next, for a
// while. Other namespaces are not told: what hangs may be this one's own.
func TestSilentServerIsAskedOnce(t *testing.T) {
	there := newElsewhere(t)
	there.silent = make(chan struct{})
	t.Cleanup(func() { close(there.silent) })
	h := hubOf(t, newFaulty(t), tenant.Options{Dialer: loopback(), RequestTimeout: 100 * time.Millisecond})
	h.config.Store(kubeconfig(at(there.URL, there.ca()), "token: t"))
	to, err := h.Destination(t.Context(), remote)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(namespace string) error {
		client, err := h.Target(t.Context(), to, tenant.Account{Namespace: namespace, Name: "deployer"})
		if err != nil {
			return err
		}
		for range 20 {
			if err = get(t.Context(), client); err == nil {
				return errors.New("it was answered")
			}
		}
		return tenant.Explain(err, "ask", tenant.Reasons{})
	}
	for step, namespace := range []string{"payments", "payments", "orders", "orders"} {
		err := ask(namespace)
		if failed := failure.From(err); failed.Reason != v1.ReasonTargetUnreachable ||
			!strings.Contains(failed.Error(), there.URL+": the API server did not answer in time") {
			t.Errorf("%s: %s: %v", namespace, failed.Reason, err)
		}
		if got, want := there.unanswered.Load(), int64(step/2+1); got != want {
			t.Errorf("%d requests for objects after %d passes, want %d", got, step+1, want)
		}
	}
	h.clock.SetTime(start.Add(time.Minute))
	if err := ask("payments"); there.unanswered.Load() != 3 {
		t.Errorf("%d requests for objects after the pause, want 3: %v", there.unanswered.Load(), err)
	}
}

// What a call sends shows nobody's token.
func TestCallsShowNoCredentials(t *testing.T) {
	there := newElsewhere(t)
	h := newHub(t, loopback())
	h.config.Store(kubeconfig(at(there.URL, there.ca()), "token: t"))
	for range 3 {
		if err := h.ask((&tenant.Pass{}).Context(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	want := map[asked]bool{{}: true, {"Bearer t", "system:serviceaccount:payments:deployer"}: true}
	if diff := cmp.Diff(want, there.askers()); diff != "" {
		t.Errorf("askers (-want +got):\n%s", diff)
	}
	if made := there.connections.Load(); made != 1 {
		t.Errorf("%d connections, want that of the call for all", made)
	}
}
