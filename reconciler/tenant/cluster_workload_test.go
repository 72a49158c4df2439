package tenant_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/tenant"
)

// trusting is a world with a ConfigMap "remote", and what listens where that leads.
type trusting struct {
	*world
	there *elsewhere
}

func newTrusting(t testing.TB) *trusting {
	t.Helper()
	w := &trusting{world: newWorld(t), there: newElsewhere(t)}
	w.clients = newClients(t, tenant.Options{
		Config: w.TokenConfig(t, w.reconciler.Namespace, w.reconciler.Name), Clock: clock.RealClock{}, Dialer: loopback(),
	})
	w.Apply(t, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: powerful, namespace: "+w.account.Namespace+"}}")
	return w
}

// ask has the account ask where a ConfigMap with the data leads; where nothing else is said, to the listener, with a
// token of the account itself.
func (w *trusting) ask(t testing.TB, data map[string]string) error {
	t.Helper()
	all := map[string]any{
		"provider": "generic", "address": w.there.URL, "ca.crt": string(w.there.ca()), "serviceAccountName": w.account.Name,
	}
	for key, value := range data {
		if all[key] = value; value == "" {
			delete(all, key)
		}
	}
	apply(t, clientFor(t, w.clients, w.account), w.object("ConfigMap", "remote", map[string]any{"data": all}))
	to, err := w.clients.Destination(t.Context(), tenant.Reference{
		Reader: w.account, KubeConfig: v1.InventoryKubeConfig{Kind: v1.KubeConfigConfigMap, Name: "remote"},
	})
	if err != nil {
		return err
	}
	client, err := w.clients.Target(t.Context(), to, w.account)
	if err != nil {
		return err
	}
	return tenant.Explain(get(t.Context(), client), "ask", tenant.Reasons{})
}

// proof is what a token says.
type proof struct {
	Subject   string   `json:"sub"`
	Audiences []string `json:"aud"`
}

// proofs are what the listener was sent so far, by token.
func (w *trusting) proofs(t testing.TB) map[string]proof {
	t.Helper()
	proofs := map[string]proof{}
	for one := range w.there.askers() {
		token, found := strings.CutPrefix(one.Authorization, "Bearer ")
		parts := strings.Split(token, ".")
		if !found || len(parts) != 3 {
			t.Fatalf("it was asked with %q, want a token of an account", one.Authorization)
		}
		payload, err := base64.RawURLEncoding.DecodeString(parts[1])
		if err != nil {
			t.Fatal(err)
		}
		var read proof
		if err := json.Unmarshal(payload, &read); err != nil {
			t.Fatal(err)
		}
		proofs[token] = read
	}
	return proofs
}

// The attack of an address that is the attacker's: what is sent there proves the account to whom it was made for, and to
// nobody else. Who is sent elsewhere by the attacker is not followed.
func TestTokensForAnotherCluster(t *testing.T) {
	w := newTrusting(t)
	if err := w.ask(t, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.ask(t, map[string]string{"audiences": "a\nb\n"}); err != nil {
		t.Fatal(err)
	}
	account := "system:serviceaccount:" + w.account.Namespace + ":" + w.account.Name
	want := map[string]bool{
		fmt.Sprint(proof{account, []string{w.there.URL}}): true, fmt.Sprint(proof{account, []string{"a", "b"}}): true,
	}
	got := map[string]bool{}
	for token, one := range w.proofs(t) {
		got[fmt.Sprint(one)] = true
		if err := w.authenticate(t, token); !apierrors.IsUnauthorized(err) {
			t.Errorf("the API server here answers the token for %v with %v, want that it is unauthorized", one.Audiences, err)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("proofs (-want +got):\n%s", diff)
	}
	for one := range w.there.askers() {
		if one.Impersonated != account {
			t.Errorf("it was asked as %q, want %s", one.Impersonated, account)
		}
	}
}

// authenticate asks the API server of the world something with a token.
func (w *trusting) authenticate(t testing.TB, token string) error {
	t.Helper()
	config := rest.AnonymousClientConfig(w.Config)
	config.BearerToken = token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Discovery().RESTClient().Get().AbsPath("/api").DoRaw(t.Context())
	return err
}

// The chart as it is admits no audience of another cluster. Who is refused is told which one it is and where it is admitted,
// not to look at RBAC, and asks once for a token whenever something is to be done.
func TestAudiencesThatAreFenced(t *testing.T) {
	w := newTrusting(t)
	const usual = "'https://kubernetes.default.svc',"
	w.fenceTokens(t, usual)
	// Tokens that were got before the fence was up are kept: each attempt needs another audience.
	attempts := 0
	cluster.Eventually(t, func(context.Context) error {
		attempts++
		if err := w.ask(t, map[string]string{"audiences": fmt.Sprintf("early-%d", attempts)}); err == nil {
			return errors.New("the fence is not up yet")
		}
		return nil
	})

	mark := w.Audit(t)
	const asks = 5
	for range asks {
		err := w.ask(t, nil)
		failed := failure.From(err)
		if failed.Reason != v1.ReasonPermissionsMissing || failed.Kind != failure.Stalled {
			t.Fatalf("%s %s: %v", failed.Reason, failed.Kind, err)
		}
		for _, want := range []string{
			"the API server does not give the reconciler a token of service account " + w.account.String(),
			"for the audiences " + w.there.URL + ";", "list it in rbac.tokenRequest.audiences of the chart",
		} {
			if !strings.Contains(failed.Error(), want) {
				t.Errorf("got %v, want %q", failed, want)
			}
		}
	}
	refused := mark.Since(t, cluster.ByAccount(w.reconciler.Namespace, w.reconciler.Name))
	if len(refused) != asks {
		t.Errorf("%d token requests, want one of each of %d attempts: %v", len(refused), asks, refused)
	}

	w.fenceTokens(t, usual+" '"+w.there.URL+"',")
	cluster.Eventually(t, func(context.Context) error { return w.ask(t, nil) })
}

// fenceTokens applies the chart's fence to the reconciler of the world until the end of the test, with audiences in the
// place of the first that it admits.
func (w *trusting) fenceTokens(t *testing.T, audiences string) {
	t.Helper()
	content, err := os.ReadFile("../../charts/stageset/files/fence-tokens.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const first, chart = "'https://kubernetes.default.svc',", "system:serviceaccount:stageset-system:stageset-reconciler"
	for _, needed := range []string{first, chart} {
		if !strings.Contains(string(content), needed) {
			t.Fatalf("the fence has no %s", needed)
		}
	}
	user := "system:serviceaccount:" + w.reconciler.Namespace + ":" + w.reconciler.Name
	w.Apply(t, strings.NewReplacer(first, audiences, chart, user).Replace(string(content)))
	t.Cleanup(func() {
		for _, kind := range []string{"ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"} {
			object := cluster.Ref("admissionregistration.k8s.io/v1", kind, "", "stageset-tokens")
			if err := client.IgnoreNotFound(w.Client(t).Delete(context.Background(), object)); err != nil {
				t.Errorf("deleting the %s: %v", kind, err)
			}
		}
	})
}

// The attacks of a tenant who writes the ConfigMap: nothing is sent anywhere.
func TestConfigMapsThatReachTooFar(t *testing.T) {
	w := newTrusting(t)
	for name, tc := range map[string]struct {
		data         map[string]string
		reason, want string
	}{
		"no account": {
			data:   map[string]string{"serviceAccountName": ""},
			reason: v1.ReasonAccessDenied, want: "serviceAccountName is not set, and the reconciler's own identity is not used",
		},
		"the local API server among the audiences": {
			data:   map[string]string{"audiences": "https://elsewhere.example\nhttps://kubernetes.default.svc"},
			reason: v1.ReasonInvalidSpec, want: `audiences has "https://kubernetes.default.svc", which is the API server of this`,
		},
		"an account that is not the tenant's": {
			data:   map[string]string{"serviceAccountName": "powerful"},
			reason: v1.ReasonAccessDenied, want: "serviceAccountName is powerful, which ServiceAccount " + w.account.String(),
		},
		"an account of another namespace": {
			data:   map[string]string{"serviceAccountName": w.reconciler.Namespace + ":" + w.reconciler.Name},
			reason: v1.ReasonInvalidSpec, want: "serviceAccountName is not the name of a ServiceAccount",
		},
		"a metadata service": {
			data:   map[string]string{"address": "https://169.254.169.254"},
			reason: v1.ReasonKubeConfigInvalid, want: "its server: address 169.254.169.254 is a link-local address",
		},
		"a key that nobody knows, and one that is missing": {
			data:   map[string]string{"provider": "", "token": "a"},
			reason: v1.ReasonInvalidSpec, want: "token is not a key that there is: use provider, cluster, address, ca.crt, " +
				"audiences, serviceAccountName; provider is not set: set it to one of aws, azure, gcp, generic",
		},
	} {
		err := w.ask(t, tc.data)
		failed := failure.From(err)
		if failed.Reason != tc.reason || failed.Kind != failure.Stalled || !strings.Contains(fmt.Sprint(err), tc.want) {
			t.Errorf("%s: %s %s: %v, want %s: %q", name, failed.Reason, failed.Kind, err, tc.reason, tc.want)
		}
		about := "kubeConfig: ConfigMap " + w.account.Namespace + "/remote: "
		if !strings.HasPrefix(fmt.Sprint(err), about) {
			t.Errorf("%s: %v, want that it begins with %q", name, err, about)
		}
	}
	if seen := w.there.askers(); len(seen) > 0 {
		t.Errorf("asked by %v, want nobody", seen)
	}
}

// Who may be another account anyway may name it.
func TestAccountsThatAConfigMapMayName(t *testing.T) {
	for name, rule := range map[string]string{
		"by impersonation": "{apiGroups: [''], resources: [serviceaccounts], resourceNames: [powerful], verbs: [impersonate]}",
		"by its token":     "{apiGroups: [''], resources: [serviceaccounts/token], resourceNames: [powerful], verbs: [create]}",
	} {
		t.Run(name, func(t *testing.T) {
			w := newTrusting(t)
			w.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: powerful, namespace: %[1]s}
rules: [%[2]s]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: powerful, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: powerful}
subjects: [{kind: ServiceAccount, name: %[3]s, namespace: %[1]s}]`, w.account.Namespace, rule, w.account.Name))
			cluster.Eventually(t, func(context.Context) error {
				return w.ask(t, map[string]string{"serviceAccountName": "powerful"})
			})
			subject := "system:serviceaccount:" + w.account.Namespace + ":powerful"
			for _, one := range w.proofs(t) {
				if one.Subject != subject {
					t.Errorf("it was sent a token of %s, want %s", one.Subject, subject)
				}
			}
		})
	}
}

// A server that takes no token gets two, however often it is asked; they are kept like those of the local API server.
func TestTokensThatAreRefusedElsewhere(t *testing.T) {
	w := newTrusting(t)
	w.there.Config.Handler = http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		w.there.ServeHTTP(discarded{}, request)
		status(answer, http.StatusUnauthorized, "Unauthorized", "who are you")
	})
	for range 5 {
		err := w.ask(t, nil)
		if failed := failure.From(err); failed.Reason != v1.ReasonTargetUnreachable || failed.Kind != failure.Transient ||
			!strings.HasPrefix(failed.Error(), w.there.URL+" does not accept the credentials") {
			t.Fatalf("%s %s: %v", failed.Reason, failed.Kind, err)
		}
	}
	if got := len(w.proofs(t)); got != 2 {
		t.Errorf("it was sent %d tokens, want 2", got)
	}
}

// discarded is an answer that nobody gets.
type discarded struct{}

func (discarded) Header() http.Header            { return http.Header{} }
func (discarded) Write(text []byte) (int, error) { return len(text), nil }
func (discarded) WriteHeader(int)                {}
