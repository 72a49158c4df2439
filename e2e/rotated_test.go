package e2e

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"testing"

	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

// T-24: credentials that are replaced again and again, as short-lived ones are, are used from the next pass on, and nothing of
// the former ones is kept: no connection, and nobody who waits on it.
func TestCredentialsRotatedAgainAndAgain(t *testing.T) {
	const rotations = 200
	s := setup(t)
	profiles := newProfiler(t)
	reconciler := s.ownReconciler(t, profiles.argument())
	n := s.remote(t)
	revision := n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	n.stageSet(t, "app", toOther("app", "remote"))
	n.waitReady(t, "app", "app", revision)
	rotate := func(number int) {
		t.Helper()
		n.kubeconfig(t, "remote", kubeconfigOf(t, n.there.TokenConfig(t, "default", hub)))
		n.request(t, "app", fmt.Sprint(number))
		n.wait(t, "app", handled(fmt.Sprint(number)), cluster.Condition(v1.ConditionReady, "True"))
	}
	for number := range 10 {
		rotate(number)
	}
	goroutines, files := profiles.goroutines(t), openFiles(t, reconciler)
	for number := 10; number < rotations; number++ {
		rotate(number)
	}
	const more = 20 // what else goes on, by chance
	if got := profiles.goroutines(t); got > goroutines+more {
		t.Errorf("%d goroutines after %d rotations, and %d after 10", got, rotations, goroutines)
	}
	if got := openFiles(t, reconciler); got > files+more {
		t.Errorf("%d open files after %d rotations, and %d after 10", got, rotations, files)
	}

	// The last one works.
	n.there.WaitFor(t, n.configMap("a"))
	revision = n.source(t, "app", map[string]string{"a.yaml": configMap("a", "2")})
	n.waitReady(t, "app", "app", revision)
}

// goroutines is how many the program has.
func (p profiler) goroutines(t testing.TB) int {
	t.Helper()
	match := regexp.MustCompile(`^goroutine profile: total (\d+)`).FindSubmatch(p.get(t, "goroutine?debug=1"))
	if match == nil {
		t.Fatal("the profile does not say how many goroutines there are")
	}
	count, err := strconv.Atoi(string(match[1]))
	if err != nil {
		t.Fatal(err)
	}
	return count
}

// openFiles is how many files and connections a process has open.
func openFiles(t testing.TB, of *process.Process) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", of.PID()))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// T-27: a server whose certificate is from another CA now is refused, and taken again as soon as the Secret has that one.
func TestServerWithACertificateOfAnotherCA(t *testing.T) {
	n := shared(t).remote(t)
	config := n.there.TokenConfig(t, "default", hub)
	port := process.FreePort(t)
	file := kubeconfigFile{
		cluster: map[string]any{"server": fmt.Sprintf("https://127.0.0.1:%d", port)},
		user:    map[string]any{"token": config.BearerToken},
	}
	first, firstCA := startFront(t, port, config)
	file.cluster["certificate-authority-data"] = firstCA
	n.kubeconfig(t, "front", file)
	revision := n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	n.stageSet(t, "app", toOther("app", "front"))
	n.waitReady(t, "app", "app", revision)
	uid := n.there.WaitFor(t, n.configMap("a")).GetUID()

	first.CloseClientConnections()
	first.Close()
	_, secondCA := startFront(t, port, config)
	n.request(t, "app", "wrong")
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonTargetUnreachable), messageHas("certificate"))
	file.cluster["certificate-authority-data"] = secondCA
	n.kubeconfig(t, "front", file)
	revision = n.source(t, "app", map[string]string{"a.yaml": configMap("a", "2")})
	n.request(t, "app", "right")
	n.waitReady(t, "app", "app", revision)
	if got := n.there.WaitFor(t, n.configMap("a")).GetUID(); got != uid {
		t.Errorf("the object was made anew: its UID was %s, and is %s", uid, got)
	}
}

// startFront is a server at a port that passes on what it is asked to another cluster, and has a certificate of a CA of its own.
func startFront(t testing.TB, port int, config *rest.Config) (*httptest.Server, []byte) {
	t.Helper()
	certificate, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	anonymous := rest.AnonymousClientConfig(config) // whoever asks shows who that is
	behind, err := rest.TransportFor(anonymous)
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(request *httputil.ProxyRequest) { request.SetURL(to) }, Transport: behind,
		ErrorLog: log.New(io.Discard, "", 0),
	})
	if err := server.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	server.Listener, server.TLS = listener, &tls.Config{Certificates: []tls.Certificate{pair}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server, certificate
}
