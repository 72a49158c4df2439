package tenant_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/tenant"
)

// A server that does not answer holds a caller no longer than the caller, or the request timeout, wants.
func TestHungServer(t *testing.T) {
	server := newFaulty(t)
	arrived := make(chan struct{}, 2)
	server.serve = func(_ http.ResponseWriter, r *http.Request, _ string) {
		arrived <- struct{}{}
		<-r.Context().Done()
	}

	t.Run("the caller leaves", func(t *testing.T) {
		client := clientFor(t, newClients(t, tenant.Options{Config: server.config()}), deployer)
		ctx, leave := context.WithCancel(t.Context())
		returned := make(chan error)
		go func() { returned <- get(ctx, client) }()
		<-arrived
		leave()
		if err := <-returned; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
	})
	t.Run("nobody leaves", func(t *testing.T) {
		options := tenant.Options{Config: server.config(), RequestTimeout: 300 * time.Millisecond}
		client := clientFor(t, newClients(t, options), deployer)
		checkFailure(t, tenant.Explain(get(t.Context(), client), "read ConfigMap payments/app", tenant.Reasons{}),
			&failure.Error{Reason: v1.ReasonTargetUnreachable, Kind: failure.Transient},
			"read ConfigMap payments/app: the API server did not answer in time")
	})
}

// crowd counts those who are present at once.
type crowd struct{ present, most atomic.Int32 }

func (c *crowd) enter() (leave func()) {
	now := c.present.Add(1)
	for seen := c.most.Load(); now > seen && !c.most.CompareAndSwap(seen, now); seen = c.most.Load() {
	}
	return func() { c.present.Add(-1) }
}

// All accounts together have no more requests at the server than allowed; who waits for a turn may leave.
func TestRequestsInFlightAreLimited(t *testing.T) {
	const limit = 3
	server := newFaulty(t)
	arrived, release := make(chan struct{}, 100), make(chan struct{})
	var requests crowd
	server.serve = func(w http.ResponseWriter, _ *http.Request, _ string) {
		defer requests.enter()()
		arrived <- struct{}{}
		<-release
		answer(w, http.StatusOK, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"app"}}`)
	}
	clients := newClients(t, tenant.Options{Config: server.config(), InFlight: limit})

	var group sync.WaitGroup
	ask := func(n int) {
		client := clientFor(t, clients, tenant.Account{Namespace: fmt.Sprintf("team-%d", n), Name: "deployer"})
		// The kinds are looked up before the server is full.
		if _, _, err := client.Scope(t.Context(), configMap.GroupKind()); err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			if err := get(t.Context(), client); err != nil {
				t.Error(err)
			}
		})
	}
	for n := range limit {
		ask(n)
	}
	for range limit {
		<-arrived
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := get(short, clientFor(t, clients, deployer)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one more request got %v, want context.DeadlineExceeded", err)
	}
	if len(arrived) > 0 {
		t.Error("a request above the limit reached the server")
	}
	for n := range 10 {
		ask(limit + n)
	}
	close(release)
	group.Wait()
	if got := requests.most.Load(); got != limit {
		t.Errorf("%d requests were at the server at once, want %d", got, limit)
	}
}

// I10, T-110: a tenant whose requests all hang, at a webhook of its own, say, leaves room for those of others.
func TestANamespaceThatHangsLeavesRoomForOthers(t *testing.T) {
	const limit, share = 8, 2
	server := newFaulty(t)
	arrived, release := make(chan struct{}, 2*limit), make(chan struct{})
	var hanging crowd
	server.serve = func(w http.ResponseWriter, r *http.Request, _ string) {
		if strings.Contains(r.URL.Path, "/hanging/") {
			defer hanging.enter()()
			arrived <- struct{}{}
			<-release
		}
		answer(w, http.StatusOK, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"app"}}`)
	}
	clients := newClients(t, tenant.Options{Config: server.config(), InFlight: limit})
	other := clientFor(t, clients, tenant.Account{Namespace: "other", Name: "deployer"})
	var group sync.WaitGroup
	for n := range 2 * limit {
		client := clientFor(t, clients, tenant.Account{Namespace: "hanging", Name: fmt.Sprintf("account-%d", n)})
		group.Go(func() {
			if _, err := client.Get(t.Context(), configMap, "hanging", "app"); err != nil {
				t.Error(err)
			}
		})
	}
	for range share {
		<-arrived
	}
	bounded, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := get(bounded, other); err != nil {
		t.Errorf("the request of another namespace: %v", err)
	}
	close(release)
	group.Wait()
	if got := hanging.most.Load(); got != share {
		t.Errorf("%d requests of one namespace were at the server at once, want %d", got, share)
	}
}

// A token goes to the server it is for and nowhere else.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var reached atomic.Bool
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	defer elsewhere.Close()
	server := newFaulty(t)
	server.serve = func(w http.ResponseWriter, r *http.Request, _ string) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	}
	client := clientFor(t, newClients(t, tenant.Options{Config: server.config()}), deployer)
	err := get(t.Context(), client)
	if err == nil || err.Error() != "the server answered 307 Temporary Redirect without saying why" {
		t.Errorf("got %v, want the redirect as an error", err)
	}
	if reached.Load() {
		t.Error("the redirect was followed")
	}
}

// None of what the reconciler authenticates with reaches a tenant's request: a certificate would come before any token.
func TestOwnCredentialsStayOutOfTenantsRequests(t *testing.T) {
	server := newFaulty(t)
	key, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	config := server.config()
	config.CertData = config.CAData
	config.KeyData = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	config.Impersonate = rest.ImpersonationConfig{UserName: "somebody"}

	var own atomic.Int32
	server.mint = func(w http.ResponseWriter, r *http.Request, n int) {
		if len(r.TLS.PeerCertificates) == 1 && r.Header.Get("Impersonate-User") == "somebody" {
			own.Add(1)
		}
		server.token(w, r, n)
	}
	server.serve = func(w http.ResponseWriter, r *http.Request, _ string) {
		if len(r.TLS.PeerCertificates) > 0 || r.Header.Get("Impersonate-User") != "" {
			t.Error("a tenant's request came with credentials of the reconciler")
		}
		answer(w, http.StatusOK, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"app"}}`)
	}
	if err := get(t.Context(), clientFor(t, newClients(t, tenant.Options{Config: config}), deployer)); err != nil {
		t.Fatal(err)
	}
	if own.Load() != 1 {
		t.Error("the token request came without them, so this shows nothing")
	}
}

// However much is logged, a Secret or a token is not (I8).
func TestBodiesAreNotLogged(t *testing.T) {
	server := newFaulty(t)
	server.serve = func(w http.ResponseWriter, _ *http.Request, _ string) {
		answer(w, http.StatusOK, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"key"},"data":{"key":"czNjcjN0"}}`)
	}
	var written strings.Builder
	logger := funcr.New(func(prefix, args string) { written.WriteString(prefix + args + "\n") }, funcr.Options{Verbosity: 10})
	ctx := klog.NewContext(t.Context(), logger)
	client, err := newClients(t, tenant.Options{Config: server.config()}).Target(ctx, tenant.Destination{}, deployer)
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "key", "namespace": "payments"},
		"data": map[string]any{"key": "czNjcjN0"},
	}}
	if _, err := client.Apply(ctx, object, tenant.ApplyOptions{FieldManager: "stageset"}); err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"czNjcjN0", "e30."} {
		if strings.Contains(written.String(), secret) {
			t.Errorf("the log has %q:\n%s", secret, written.String())
		}
	}
}

// A name, namespace or version from a manifest cannot lead a request to another path.
func TestNamesCannotLeadElsewhere(t *testing.T) {
	server := newFaulty(t)
	client := clientFor(t, newClients(t, tenant.Options{Config: server.config()}), deployer)
	kind := func(group, version, kind string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
	}
	for name, test := range map[string]struct {
		gvk             schema.GroupVersionKind
		namespace, name string
		want            func(error) bool
	}{
		"name":             {configMap, "payments", "../../secrets/key", apierrors.IsBadRequest},
		"dots":             {configMap, "payments", "..", apierrors.IsBadRequest},
		"no name":          {configMap, "payments", "", apierrors.IsBadRequest},
		"namespace":        {configMap, "../other", "app", apierrors.IsBadRequest},
		"no namespace":     {configMap, "", "app", apierrors.IsBadRequest},
		"group":            {kind("a/b", "v1", "C"), "payments", "app", meta.IsNoMatchError},
		"version":          {kind("", "..", "ConfigMap"), "payments", "app", meta.IsNoMatchError},
		"no version":       {kind("", "", "ConfigMap"), "payments", "app", meta.IsNoMatchError},
		"a subresource":    {kind("", "v1", "Part"), "payments", "app", meta.IsNoMatchError},
		"a kind in a list": {kind("", "v1", "ConfigMapList"), "payments", "app", meta.IsNoMatchError},
	} {
		t.Run(name, func(t *testing.T) {
			// Delete knows no collection, so an empty name must not become one.
			_, err := client.Delete(t.Context(), test.gvk, test.namespace, test.name,
				tenant.DeleteOptions{UID: "1", ResourceVersion: "1"})
			if !test.want(err) {
				t.Errorf("delete got %v", err)
			}
			if _, err = client.Get(t.Context(), test.gvk, test.namespace, test.name); !test.want(err) {
				t.Errorf("get got %v", err)
			}
		})
	}
	if seen := server.seen(); len(seen) > 0 {
		t.Errorf("the server was asked for %v", seen)
	}
}

// A delete that does not say which object it means is not sent.
func TestDeleteNeedsItsPreconditions(t *testing.T) {
	server := newFaulty(t)
	client := clientFor(t, newClients(t, tenant.Options{Config: server.config()}), deployer)
	for name, options := range map[string]tenant.DeleteOptions{
		"neither": {}, "no uid": {ResourceVersion: "1"}, "no resourceVersion": {UID: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := client.Delete(t.Context(), configMap, "payments", "app", options)
			if !apierrors.IsBadRequest(err) {
				t.Errorf("got %v, want BadRequest", err)
			}
		})
	}
	if seen := server.seen(); len(seen) > 0 {
		t.Errorf("the server was asked for %v", seen)
	}
}

// Only an API server that knows the kind and has no such object proves that the object is gone.
func TestDeleteIsGoneOnlyIfTheServerSaysSo(t *testing.T) {
	for name, test := range map[string]struct {
		code int
		body string
		gone bool
		err  func(error) bool
	}{
		"deleted": {http.StatusOK, `{"kind":"Status","apiVersion":"v1","status":"Success"}`, true, nil},
		"terminating": {http.StatusOK,
			`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"app","finalizers":["a/b"]}}`, false, nil},
		"not there": {http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,
			"details":{"name":"app","kind":"configmaps"}}`, true, nil},
		"no such path": {http.StatusNotFound, `404 page not found`, false, meta.IsNoMatchError},
		"no such path, as a status": {http.StatusNotFound,
			`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`, false, meta.IsNoMatchError},
		"another object": {http.StatusConflict,
			`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`, false, apierrors.IsConflict},
		"not even JSON": {http.StatusOK, `<html>`, false, func(err error) bool { return err != nil }},
	} {
		t.Run(name, func(t *testing.T) {
			server := newFaulty(t)
			server.serve = func(w http.ResponseWriter, _ *http.Request, _ string) { answer(w, test.code, test.body) }
			client := clientFor(t, newClients(t, tenant.Options{Config: server.config()}), deployer)
			gone, err := client.Delete(t.Context(), configMap, "payments", "app",
				tenant.DeleteOptions{UID: "1", ResourceVersion: "2"})
			if gone != test.gone {
				t.Errorf("gone is %t, want %t", gone, test.gone)
			}
			if test.err == nil && err != nil || test.err != nil && !test.err(err) {
				t.Errorf("unexpected error %v", err)
			}
			want := request{Method: http.MethodDelete, Path: "/api/v1/namespaces/payments/configmaps/app", Token: "1",
				Body: `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"1","resourceVersion":"2"},` +
					`"propagationPolicy":"Background"}`}
			if diff := cmp.Diff([]request{want}, server.seen()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// A server that cannot leave out the rest of the objects makes no difference to who asked for metadata.
func TestListOfMetadataFromAServerThatSendsAll(t *testing.T) {
	server := newFaulty(t)
	server.serve = func(w http.ResponseWriter, r *http.Request, _ string) {
		if got := r.Header.Get("Accept"); !strings.Contains(got, "as=PartialObjectMetadataList") {
			t.Errorf("asked for %q, want metadata", got)
		}
		answer(w, http.StatusOK, `{"metadata":{},"items":[{"metadata":{"name":"a"},"data":{"key":"value"}}]}`)
	}
	client := clientFor(t, newClients(t, tenant.Options{Config: server.config()}), deployer)
	var visited []map[string]any
	err := client.List(t.Context(), configMap, tenant.ListOptions{Namespace: "payments", MetadataOnly: true},
		func(u *unstructured.Unstructured) { visited = append(visited, u.Object) })
	if err != nil {
		t.Fatal(err)
	}
	want := []map[string]any{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}}}
	if diff := cmp.Diff(want, visited); diff != "" {
		t.Errorf("visited (-want +got):\n%s", diff)
	}
}

// A list whose beginning the server has forgotten goes on from the token that the server offers.
func TestListGoesOnAfterItExpired(t *testing.T) {
	server := newFaulty(t)
	server.serve = func(w http.ResponseWriter, r *http.Request, _ string) {
		switch r.URL.Query().Get("continue") {
		case "":
			answer(w, http.StatusOK, `{"metadata":{"continue":"old"},"items":[{"metadata":{"name":"a"}}]}`)
		case "old":
			answer(w, http.StatusGone, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,
				"metadata":{"continue":"new"}}`)
		default:
			answer(w, http.StatusOK, `{"metadata":{},"items":[{"metadata":{"name":"b","generation":9007199254740993}}]}`)
		}
	}
	client := clientFor(t, newClients(t, tenant.Options{Config: server.config()}), deployer)
	var visited []string
	err := client.List(t.Context(), configMap, tenant.ListOptions{Namespace: "payments"}, func(u *unstructured.Unstructured) {
		visited = append(visited, fmt.Sprintf("%s %s %d", u.GetKind(), u.GetName(), u.GetGeneration()))
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"ConfigMap a 0", "ConfigMap b 9007199254740993"}, visited); diff != "" {
		t.Errorf("visited (-want +got):\n%s", diff)
	}
}

// A list that expires again and again without offering a way on ends.
func TestListThatCannotGoOnIsAnError(t *testing.T) {
	server := newFaulty(t)
	server.serve = func(w http.ResponseWriter, _ *http.Request, _ string) {
		answer(w, http.StatusGone, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,
			"metadata":{"continue":"same"}}`)
	}
	client := clientFor(t, newClients(t, tenant.Options{Config: server.config()}), deployer)
	err := client.List(t.Context(), configMap, tenant.ListOptions{Namespace: "payments"}, func(*unstructured.Unstructured) {})
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("got %v, want Expired", err)
	}
}

// However many objects have a kind that does not exist, the server is asked for it once a second.
func TestMissingKindCausesNoDiscoveryStorm(t *testing.T) {
	server := newFaulty(t)
	var served atomic.Bool
	server.serve = func(w http.ResponseWriter, r *http.Request, _ string) {
		if r.URL.Path == "/apis/example.test/v1" && served.Load() {
			answer(w, http.StatusOK, `{"resources":[{"name":"widgets","kind":"Widget","namespaced":true}]}`)
			return
		}
		http.NotFound(w, r)
	}
	clock := clocktesting.NewFakePassiveClock(start)
	client := clientFor(t, newClients(t, tenant.Options{Config: server.config(), Clock: clock}), deployer)
	widget := schema.GroupVersionKind{Group: "example.test", Version: "v1", Kind: "Widget"}
	ask := func() {
		var group sync.WaitGroup
		for range 100 {
			group.Go(func() {
				if _, err := client.Get(t.Context(), widget, "payments", "app"); !meta.IsNoMatchError(err) {
					t.Errorf("got %v, want no match", err)
				}
			})
		}
		group.Wait()
	}
	ask()
	ask()
	if got := len(server.seen()); got != 1 {
		t.Errorf("%d requests in the first second, want 1", got)
	}
	clock.SetTime(start.Add(time.Second))
	ask()
	if got := len(server.seen()); got != 2 {
		t.Errorf("%d requests after a second, want 2", got)
	}

	// The absence is not remembered for longer than that.
	served.Store(true)
	clock.SetTime(start.Add(2 * time.Second))
	if _, err := client.Get(t.Context(), widget, "payments", "app"); !meta.IsNoMatchError(err) {
		t.Errorf("got %v, want the 404 of the object's path as no match", err)
	}
	if got := len(server.seen()); got != 4 {
		t.Errorf("%d requests, want one more for the kind and one for the object", got)
	}
}

// What is known of a kind is looked up anew once it proves wrong: a CRD that came back with another scope.
func TestKindThatChangedIsLookedUpAgain(t *testing.T) {
	server := newFaulty(t)
	var namespaced atomic.Bool
	namespaced.Store(true)
	server.serve = func(w http.ResponseWriter, r *http.Request, _ string) {
		object := "/apis/example.test/v1/widgets/app"
		if namespaced.Load() {
			object = "/apis/example.test/v1/namespaces/payments/widgets/app"
		}
		switch r.URL.Path {
		case "/apis/example.test/v1":
			answer(w, http.StatusOK,
				fmt.Sprintf(`{"resources":[{"name":"widgets","kind":"Widget","namespaced":%t}]}`, namespaced.Load()))
		case object:
			answer(w, http.StatusOK, `{"apiVersion":"example.test/v1","kind":"Widget","metadata":{"name":"app"}}`)
		default:
			http.NotFound(w, r)
		}
	}
	clock := clocktesting.NewFakePassiveClock(start)
	client := clientFor(t, newClients(t, tenant.Options{Config: server.config(), Clock: clock}), deployer)
	widget := schema.GroupVersionKind{Group: "example.test", Version: "v1", Kind: "Widget"}
	read := func() error {
		_, err := client.Get(t.Context(), widget, "payments", "app")
		return err
	}
	if err := read(); err != nil {
		t.Fatal(err)
	}
	namespaced.Store(false)
	clock.SetTime(start.Add(time.Hour))
	if err := read(); !meta.IsNoMatchError(err) {
		t.Fatalf("got %v, want no match for the old path", err)
	}
	if err := read(); err != nil {
		t.Errorf("got %v after the kind had proved wrong, want the object", err)
	}
}

// A failure of discovery is nobody's but the account's that met it, and is not remembered.
func TestFailedDiscoveryIsNotRemembered(t *testing.T) {
	server := newFaulty(t)
	var broken atomic.Bool
	broken.Store(true)
	server.serve = func(w http.ResponseWriter, r *http.Request, _ string) {
		if broken.Load() {
			status(w, http.StatusServiceUnavailable, "ServiceUnavailable", "service unavailable")
			return
		}
		answer(w, http.StatusOK,
			`{"versions":[{"version":"v1"}],"resources":[{"name":"widgets","kind":"Widget","namespaced":true}]}`)
	}
	client := clientFor(t, newClients(t, tenant.Options{Config: server.config()}), deployer)
	widget := schema.GroupKind{Group: "example.test", Kind: "Widget"}
	if _, _, err := client.Scope(t.Context(), widget); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("got %v, want ServiceUnavailable", err)
	}
	broken.Store(false)
	namespaced, known, err := client.Scope(t.Context(), widget)
	if !namespaced || !known || err != nil {
		t.Errorf("got namespaced %t, known %t, %v; want it to be found at once", namespaced, known, err)
	}
}
