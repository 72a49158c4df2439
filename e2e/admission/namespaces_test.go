package admission_test

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/e2e/cluster"
)

// lagging is a way to the API server that the program takes, on which the watch of Namespaces stands still from a moment on.
type lagging struct {
	server *httptest.Server
	behind chan struct{} // closed when it lags
	ended  chan struct{} // closed at the end of the test
}

// lag has the program reach the API server by way of a lagging one.
func (i *installation) lag(t *testing.T) *lagging {
	t.Helper()
	target, err := url.Parse(i.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	next, err := rest.TransportFor(rest.AnonymousClientConfig(i.Config))
	if err != nil {
		t.Fatal(err)
	}
	l := &lagging{behind: make(chan struct{}), ended: make(chan struct{})}
	l.server = httptest.NewTLSServer(&httputil.ReverseProxy{
		Rewrite:        func(request *httputil.ProxyRequest) { request.SetURL(target) },
		Transport:      next,
		ModifyResponse: l.hold,
		FlushInterval:  -1, // watches
		ErrorLog:       log.New(io.Discard, "", 0),
	})
	t.Cleanup(func() {
		close(l.ended)
		l.server.CloseClientConnections()
		l.server.Close()
	})
	account := rest.CopyConfig(i.TokenConfig(t, i.name, i.name+"-admission"))
	account.Host, account.CAFile, account.ServerName = l.server.URL, "", ""
	account.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: l.server.Certificate().Raw})
	i.kubeconfig = i.WriteKubeconfig(t, account)
	return l
}

// hold has the watch of Namespaces pass through the gate.
func (l *lagging) hold(response *http.Response) error {
	request := response.Request.URL
	if request.Path == "/api/v1/namespaces" && request.Query().Has("watch") {
		response.Body = &gate{ReadCloser: response.Body, lagging: l}
	}
	return nil
}

// gate lets nothing through once the watch lags.
type gate struct {
	io.ReadCloser
	*lagging
}

// Read implements io.Reader.
func (g *gate) Read(p []byte) (int, error) {
	n, err := g.ReadCloser.Read(p)
	select {
	case <-g.behind:
		<-g.ended
		return 0, io.EOF
	default:
		return n, err
	}
}

// A Namespace that the program has not heard of yet is asked for once; where that fails as well, what looks at the Namespace
// is decided by failurePolicy, with the reason, and is never left out (P-21).
func TestNamespaceThatIsNotInTheCache(t *testing.T) {
	i := install(t)
	i.tenant += "-late"
	late := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: i.tenant, Labels: map[string]string{"tier": "gold"}}}
	relay := i.lag(t)
	i.installWebhooks(t)
	i.start(t)
	policy := i.policy(t, "gold", onlyGold)
	i.inForce(t, policy)
	close(relay.behind)
	mark := i.Audit(t)
	if err := i.client.Create(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = i.client.Delete(context.Background(), late) })

	object := i.stageSet(t, "early", validSpec)
	cluster.Eventually(t, func(ctx context.Context) error {
		return refused(i.client.Create(ctx, object.DeepCopy(), client.DryRunAll), policy.GetName()+"/two: gold has two stages")
	})
	asked := mark.Since(t, cluster.ByAccount(i.name, i.name+"-admission"), func(e cluster.AuditEvent) bool {
		return e.Resource == "namespaces" && e.Verb == "get" && e.Name == i.tenant
	})
	if len(asked) == 0 {
		t.Error("the API server was not asked for the Namespace")
	}

	i.takeNamespaces(t)
	unread := policy.GetName() + "/matchConstraints: cannot be evaluated: "
	cluster.Eventually(t, func(ctx context.Context) error {
		return refused(i.client.Create(ctx, object.DeepCopy(), client.DryRunAll), unread)
	})
	said := i.verdict(t, object, client.DryRunAll)
	reason := `reading Namespace ` + i.tenant + `: this installation may not`
	if !slices.ContainsFunc(said, func(text string) bool { return strings.HasPrefix(text, reason) }) {
		t.Errorf("nobody says %s…, but:\n%s", reason, strings.Join(said, "\n"))
	}
	policy = i.policy(t, "gold", "failurePolicy: Ignore\n"+onlyGold)
	cluster.Eventually(t, func(ctx context.Context) error {
		return i.client.Create(ctx, object.DeepCopy(), client.DryRunAll)
	})
}

// onlyGold is a rule for namespaces with a label, which is more than their name.
const onlyGold = `
matchConstraints: {namespaceSelector: {matchLabels: {tier: gold}}}
validations:
- {name: two, fieldPath: spec.stages, expression: object.spec.stages.size() >= 2, message: gold has two stages}`

// refused is nil for an error that has the text.
func refused(err error, text string) error {
	if err == nil {
		return errors.New("it is allowed")
	}
	return contains(err.Error(), text)
}

// takeNamespaces takes from the program the right to get Namespaces.
func (i *installation) takeNamespaces(t *testing.T) {
	t.Helper()
	var role rbacv1.ClusterRole
	if err := i.client.Get(t.Context(), client.ObjectKey{Name: i.name + "-admission"}, &role); err != nil {
		t.Fatal(err)
	}
	for n, rule := range role.Rules {
		if slices.Contains(rule.Resources, "namespaces") {
			role.Rules[n].Verbs = slices.DeleteFunc(rule.Verbs, func(verb string) bool { return verb == "get" })
		}
	}
	if err := i.client.Update(t.Context(), &role); err != nil {
		t.Fatal(err)
	}
}
