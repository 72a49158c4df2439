package store_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/api/crds"
	"github.com/stageset/stageset/api/v1alpha1"
	"github.com/stageset/stageset/e2e/cluster"
)

// watches are those of one resource that clients have open.
type watches struct {
	resource string
	mu       sync.Mutex
	open     map[*watching]bool
}

// watching is the body of the answer to a watch.
type watching struct {
	io.ReadCloser
	of *watches
}

// Close implements io.Closer.
func (w *watching) Close() error {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	delete(w.of.open, w)
	return w.ReadCloser.Close()
}

// follow is config with its watches in w.
func (w *watches) follow(config *rest.Config) *rest.Config {
	w.open = map[*watching]bool{}
	followed := rest.CopyConfig(config)
	followed.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			if err != nil || response.StatusCode != http.StatusOK || request.URL.Query().Get("watch") == "" ||
				!strings.HasSuffix(request.URL.Path, "/"+w.resource) {
				return response, err
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			body := &watching{ReadCloser: response.Body, of: w}
			w.open[body], response.Body = true, body
			return response, nil
		})
	})
	return followed
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// wait waits until there are exactly n.
func (w *watches) wait(t *testing.T, n int) {
	t.Helper()
	cluster.Eventually(t, func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.open) != n {
			return fmt.Errorf("%d watches of %s are open, want %d", len(w.open), w.resource, n)
		}
		return nil
	})
}

// cut ends all of them, as a network would.
func (w *watches) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for body := range w.open {
		_ = body.ReadCloser.Close()
	}
}

// names stores the names that allowsName allows.
func names(t *testing.T, admin client.Client, namespace, text string) {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "names"}}
	key := client.ObjectKeyFromObject(object)
	if err := client.IgnoreNotFound(admin.Get(t.Context(), key, object)); err != nil {
		t.Fatal(err)
	}
	object.Data = map[string]string{"names": text}
	var err error
	if object.ResourceVersion == "" {
		err = admin.Create(t.Context(), object)
	} else {
		err = admin.Update(t.Context(), object)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// P-15: there is a watch as long as a policy needs it, one for all that need the same, and no longer; and what a policy that
// is made anew reads is what there is, and not what an earlier watch saw last.
func TestAWatchLivesAsLongAsAPolicyNeedsIt(t *testing.T) {
	c := cluster.Shared(t)
	c.InstallCRDs(t, crds.FS)
	admin, keep := administrator(t)
	namespace := c.Namespace(t, "lifetime")
	open := &watches{resource: "configmaps"}
	s := start(t, open.follow(c.Config), logr.Discard())
	named := &v1alpha1.ParamRef{Name: "names", Namespace: namespace}
	names(t, admin, namespace, "a")

	keep(policy("lifetime", allowsName, named))
	open.wait(t, 1)
	eventually(t, s, namespace, "b", "lifetime/rule: no")
	keep(policy("lifetime-other", allowsName, named))
	eventually(t, s, namespace, "b", "lifetime/rule: no", "lifetime-other/rule: no")
	open.wait(t, 1)
	remove := func(name string) {
		t.Helper()
		if err := admin.Delete(t.Context(), &v1alpha1.StageSetPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	remove("lifetime-other")
	eventually(t, s, namespace, "b", "lifetime/rule: no")
	open.wait(t, 1)
	remove("lifetime")
	eventually(t, s, namespace, "b")
	open.wait(t, 0)

	names(t, admin, namespace, "b")
	keep(policy("lifetime", allowsName, named))
	eventually(t, s, namespace, "a", "lifetime/rule: no")
	eventually(t, s, namespace, "b")
}

// reader is an account that may watch policies, and nothing else.
func reader(t *testing.T, namespace string) {
	t.Helper()
	cluster.Shared(t).Apply(t, fmt.Sprintf(`
{apiVersion: v1, kind: ServiceAccount, metadata: {name: reader, namespace: %[1]s}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: %[1]s}
rules: [{apiGroups: [stages.metio.wtf], resources: [stagesetpolicies], verbs: [list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}
subjects: [{kind: ServiceAccount, name: reader, namespace: %[1]s}]`, namespace))
}

// What the account may not watch any more is not known any more: what was seen last decides nothing.
func TestParamsThatMayNotBeReadAnyMore(t *testing.T) {
	c := cluster.Shared(t)
	c.InstallCRDs(t, crds.FS)
	admin, keep := administrator(t)
	namespace := c.Namespace(t, "revoked")
	reader(t, namespace)
	c.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: params, namespace: %[1]s}
rules: [{apiGroups: [''], resources: [configmaps], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: params, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: params}
subjects: [{kind: ServiceAccount, name: reader, namespace: %[1]s}]`, namespace))
	names(t, admin, namespace, "a")
	open := &watches{resource: "configmaps"}
	s := start(t, open.follow(c.TokenConfig(t, namespace, "reader")), logr.Discard())
	keep(policy("revoked", allowsName, &v1alpha1.ParamRef{Name: "names", Namespace: namespace}))
	keep(policy("unaffected", "object.metadata.name != 'x'", nil))
	open.wait(t, 1)
	eventually(t, s, namespace, "a")

	binding := cluster.Ref("rbac.authorization.k8s.io/v1", "RoleBinding", namespace, "params")
	if err := admin.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	told := s.Subscribe()
	open.cut()
	refused := fmt.Sprintf(`revoked/paramRef: cannot be evaluated: params ConfigMap %[1]s/names: this installation may not get `+
		`ConfigMap in namespace %[1]q: policies.paramResources of the chart allows it`, namespace)
	eventually(t, s, namespace, "a", refused)
	eventually(t, s, namespace, "x", refused, "unaffected/rule: no")
	<-told
	open.wait(t, 0)
}

// P-16: a kind that is not served any more has no parameters, and no other policy minds; served again, it has those that
// are there then.
func TestParamsOfAKindThatGoes(t *testing.T) {
	c := cluster.Shared(t)
	c.InstallCRDs(t, crds.FS)
	admin, keep := administrator(t)
	kind := serve(t, admin)
	c.Apply(t, "{apiVersion: example.com/v1, kind: Limit, metadata: {name: limit}, spec: {only: x}}")
	s := start(t, c.Config, logr.Discard())
	keep(limited())
	keep(policy("unaffected", "object.metadata.name != 'x'", nil))
	eventually(t, s, "a", "y", "limited/rule: no")
	if err := admin.Delete(t.Context(), kind); err != nil {
		t.Fatal(err)
	}
	eventually(t, s, "a", "x", notServed, "unaffected/rule: no")
	serve(t, admin)
	c.Apply(t, "{apiVersion: example.com/v1, kind: Limit, metadata: {name: limit}, spec: {only: z}}")
	eventually(t, s, "a", "z")
	eventually(t, s, "a", "x", "limited/rule: no", "unaffected/rule: no")
}

// P-16, P-14: when the API server restarts, what was known holds on, and what changes afterwards is followed.
func TestARestartOfTheAPIServer(t *testing.T) {
	c := cluster.Shared(t)
	c.InstallCRDs(t, crds.FS)
	admin, keep := administrator(t)
	serve(t, admin)
	namespace := c.Namespace(t, "restart")
	names(t, admin, namespace, "x")
	c.Apply(t, "{apiVersion: example.com/v1, kind: Limit, metadata: {name: limit}, spec: {only: x}}")
	s := start(t, c.Config, logr.Discard())
	keep(limited())
	keep(policy("named", allowsName, &v1alpha1.ParamRef{Name: "names", Namespace: namespace}))
	eventually(t, s, "a", "y", "limited/rule: no", "named/rule: no")
	eventually(t, s, "a", "x")

	c.KillComponent(t, "kube-apiserver")
	if got := denials(t.Context(), s, "a", "y"); len(got) != 2 {
		t.Errorf("without an API server the policies say %q", got)
	}
	if got := denials(t.Context(), s, "a", "x"); got != nil {
		t.Errorf("without an API server the policies deny %q", got)
	}
	c.AwaitAPI(t)
	c.Apply(t, "{apiVersion: example.com/v1, kind: Limit, metadata: {name: limit}, spec: {only: z}}")
	names(t, admin, namespace, "z")
	keep(policy("later", "object.metadata.name != 'x'", nil))
	eventually(t, s, "a", "z")
	eventually(t, s, "a", "x", "later/rule: no", "limited/rule: no", "named/rule: no")
}

// A watch that is refused is tried again and again, and wakes nobody: there are no other parameters.
func TestARefusedWatchWakesNobody(t *testing.T) {
	c := cluster.Shared(t)
	c.InstallCRDs(t, crds.FS)
	_, keep := administrator(t)
	namespace := c.Namespace(t, "refused")
	reader(t, namespace)
	at := testingclock.NewFakeClock(time.Now())
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(10 * time.Millisecond):
				at.Step(time.Second)
			}
		}
	}()
	mark := c.Audit(t)
	s := startAt(t, c.TokenConfig(t, namespace, "reader"), logr.Discard(), at)
	keep(policy("refused", allowsName, &v1alpha1.ParamRef{Name: "names"}))
	tried := func(n int) {
		t.Helper()
		cluster.Eventually(t, func(context.Context) error {
			lists := 0
			for _, event := range mark.Since(t, cluster.ByAccount(namespace, "reader")) {
				if event.Resource == "configmaps" && event.Verb == "list" && event.Code == http.StatusForbidden {
					lists++
				}
			}
			if lists < n {
				return fmt.Errorf("the watch was tried %d times, want %d", lists, n)
			}
			return nil
		})
	}
	tried(1)
	told, before := s.Subscribe(), s.Set()
	tried(6)
	if s.Set() != before || len(told) > 0 {
		t.Error("there is another set, though nothing has changed")
	}
}
