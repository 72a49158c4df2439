package e2e

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

// deadCluster is a server that StageSets wait for in vain, or for long; every path of it is a cluster of its own.
type deadCluster struct {
	address string
	ca      []byte
}

// file is a kubeconfig that leads there, with the user of one that leads to a cluster that is alive.
func (d deadCluster) file(path string, alive kubeconfigFile) kubeconfigFile {
	return kubeconfigFile{user: alive.user, cluster: map[string]any{
		"server": "https://" + d.address + "/" + path, "certificate-authority-data": d.ca,
	}}
}

// deadClusters has one of every kind: the first ones never answer, and the last two are slow.
func deadClusters(t *testing.T, alive kubeconfigFile) []deadCluster {
	t.Helper()
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	ca := alive.cluster["certificate-authority-data"].([]byte)
	return []deadCluster{
		{fmt.Sprintf("127.0.0.1:%d", process.FreePort(t)), ca}, // refuses
		{blackHole(t), ca},
		{newSilent(t), ca},
		newHanging(t, hang), // TLS, and nothing more
		newSlow(t, alive, func(r *http.Request) time.Duration { // what needs no storage, and nothing more
			if strings.Contains(r.URL.Path, "/namespaces/") || r.Method != http.MethodGet {
				return time.Hour
			}
			return 0
		}),
		newSlow(t, alive, func(*http.Request) time.Duration { return 5 * time.Second }),
	}
}

// newSlow is the cluster that is alive, with answers that are late.
func newSlow(t *testing.T, alive kubeconfigFile, late func(*http.Request) time.Duration) deadCluster {
	t.Helper()
	server, err := url.Parse(alive.cluster["server"].(string))
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(server)
			_, path, _ := strings.Cut(r.In.URL.Path[1:], "/")
			r.Out.URL.Path = "/" + path
		},
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		ErrorLog:  log.New(io.Discard, "", 0),
	}
	return newHanging(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(late(r)):
			forward.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	})
}

// blackHole is an address that takes no more connections and says nothing of it: its queue is full.
func blackHole(t *testing.T) string {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(socket) })
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(socket, 0); err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", bound.(*syscall.SockaddrInet4).Port)
	for range 16 {
		connection, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			return address
		}
		t.Cleanup(func() { _ = connection.Close() })
	}
	t.Fatal("the queue does not become full")
	return ""
}

// newSilent is an address that takes connections and says nothing.
func newSilent(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, connection) }()
		}
	}()
	return listener.Addr().String()
}

// newHanging is a server with TLS.
func newHanging(t *testing.T, serve http.HandlerFunc) deadCluster {
	t.Helper()
	server := httptest.NewUnstartedServer(serve)
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return deadCluster{server.Listener.Addr().String(), ca}
}

const perGroup = 20

// group are StageSets of a tenant, each of which applies an object of its own.
type group struct {
	*tenant
	name, revision string
}

// group makes them: to where the Secret leads, or here.
func (n *tenant) group(t *testing.T, name, secret string) group {
	t.Helper()
	files := map[string]string{}
	for i := range perGroup {
		files[fmt.Sprintf("%d/a.yaml", i)] = configMap(fmt.Sprintf("%s-%d", name, i), "1")
	}
	made := group{n, name, n.source(t, name, files)}
	n.create(t, perGroup, func(i int) *v1.StageSet { return made.set(i, secret) })
	return made
}

func (g group) set(i int, secret string) *v1.StageSet {
	set := &v1.StageSet{}
	set.Namespace, set.Name = g.namespace, fmt.Sprintf("%s-%d", g.name, i)
	set.Spec.ServiceAccountName = deployer
	if secret != "" {
		set.Spec.KubeConfig = &v1.KubeConfigReference{SecretRef: &v1.SecretKeyReference{Name: secret}}
	}
	set.Spec.Stages = []v1.Stage{{
		Name: "app", Path: "./" + strconv.Itoa(i%perGroup),
		SourceRef: v1.SourceReference{Kind: v1.SourceKindGitRepository, Name: g.name},
	}}
	return set
}

// create makes StageSets at once.
func (n *tenant) create(t *testing.T, count int, set func(i int) *v1.StageSet) {
	t.Helper()
	all, ctx := errgroup.WithContext(t.Context())
	all.SetLimit(8)
	for i := range count {
		all.Go(func() error { return n.Client.Create(ctx, set(i)) })
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
}

// ready waits until all of the group are Ready, and says how long that took.
func (g group) ready(t *testing.T, since time.Time) time.Duration {
	t.Helper()
	for i := range perGroup {
		g.waitReady(t, fmt.Sprintf("%s-%d", g.name, i), g.name, g.revision)
	}
	return time.Since(since)
}

// dead makes StageSets that go to clusters of all kinds, each to one of its own.
func (n *remote) dead(t *testing.T, clusters []deadCluster, alive kubeconfigFile, count int) {
	t.Helper()
	made := group{tenant: n.tenant, name: "dead"}
	n.source(t, made.name, map[string]string{"0/a.yaml": configMap(made.name, "1")})
	for i := range count {
		name := fmt.Sprintf("dead-%d", i)
		n.kubeconfig(t, name, clusters[i%len(clusters)].file(name, alive))
	}
	n.create(t, count, func(i int) *v1.StageSet {
		set := made.set(i, fmt.Sprintf("dead-%d", i))
		set.Spec.Stages[0].Path = "./0"
		return set
	})
	t.Cleanup(func() {
		if err := n.Client.DeleteAllOf(context.Background(), &v1.StageSet{}, client.InNamespace(n.namespace)); err != nil {
			t.Error(err)
		}
	})
}

// T-25: a dead cluster slows nobody else. A reconciler that starts knows of no cluster, and has a hundred dead ones of
// three namespaces. The StageSets of this cluster, and those that another namespace applies to one that is alive, are Ready
// as if there were none; so are, a little later, those of a namespace that has dead ones itself.
func TestDeadClustersSlowNobodyElse(t *testing.T) {
	s := setup(t)
	s.stopReconciler(t)
	alive := kubeconfigOf(t, otherCluster(t).TokenConfig(t, "default", hub))
	clusters := deadClusters(t, alive)
	measure := func(theirs []*remote, meanwhile func(*process.Process)) (took []time.Duration) {
		groups := []group{
			s.tenant(t).group(t, "here", ""), s.remote(t).group(t, "there", "remote"), theirs[0].group(t, "beside", "remote"),
		}
		reconciler := startReconciler(t, s.Cluster, "127.0.0.1")
		began := time.Now()
		for _, group := range groups {
			took = append(took, group.ready(t, began))
		}
		meanwhile(reconciler)
		if err := reconciler.Stop(); err != nil {
			t.Error(err)
		}
		return took
	}
	alone := measure([]*remote{s.remote(t)}, func(*process.Process) {})

	theirs := []*remote{s.remote(t), s.remote(t), s.remote(t)}
	for _, n := range theirs {
		n.dead(t, clusters, alive, 34)
	}
	beside := measure(theirs, func(reconciler *process.Process) {
		for i := range len(clusters) - 2 {
			theirs[0].waitRefused(t, fmt.Sprintf("dead-%d", i), v1.ReasonTargetUnreachable)
		}
		for i := len(clusters) - 2; i < len(clusters); i++ {
			waitOutput(t, reconciler, "name=dead-"+strconv.Itoa(i)+" ", "the other cluster is slow")
		}
	})
	// What takes longer in general, such as for what else the machine does, and then what is not a matter of that: a single
	// request that is not answered takes three seconds, and five or more before they are told from those that are slow.
	for i, most := range []time.Duration{5 * time.Second, 5 * time.Second, 20 * time.Second} {
		if beside[i] > 5*alone[i]+most {
			t.Errorf("ready after %s, beside dead clusters after %s", alone, beside)
		}
	}
	t.Logf("ready after %s, beside dead clusters after %s", alone, beside)
}

// waitOutput waits until the reconciler has written a line with all the texts.
func waitOutput(t *testing.T, reconciler *process.Process, texts ...string) {
	t.Helper()
	cluster.Eventually(t, func(context.Context) error {
		for line := range strings.Lines(reconciler.Output()) {
			if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
				return nil
			}
		}
		return fmt.Errorf("no line has %q", texts)
	})
}

// T-25: a cluster that takes its time for what is written, as one whose webhooks are slow, is waited for.
func TestSlowClusterIsAppliedTo(t *testing.T) {
	n := shared(t).remote(t)
	alive := kubeconfigOf(t, n.there.TokenConfig(t, "default", hub))
	slow := newSlow(t, alive, func(r *http.Request) time.Duration {
		if r.Method == http.MethodPatch {
			return 4 * time.Second
		}
		return 0
	})
	n.kubeconfig(t, "slow", slow.file("slow", alive))
	revision := n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	n.stageSet(t, "app", toOther("app", "slow"))
	n.waitReady(t, "app", "app", revision)
	n.there.WaitFor(t, n.configMap("a"))
}
