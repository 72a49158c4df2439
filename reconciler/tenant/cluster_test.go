package tenant_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/tenant"
)

func TestMain(m *testing.M) { os.Exit(cluster.Run(m, cluster.WithRestarts())) }

// world is a reconciler that may request tokens and do nothing else, and a tenant whose account may write ConfigMaps,
// Secrets, ServiceAccounts and Services in its namespace.
type world struct {
	*cluster.Cluster
	reconciler tenant.Account
	account    tenant.Account
	clients    *tenant.Clients
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{Cluster: cluster.Shared(t)}
	w.reconciler = tenant.Account{Namespace: w.Namespace(t, "reconciler"), Name: "reconciler"}
	w.account = tenant.Account{Namespace: w.Namespace(t, "tenant"), Name: "deployer"}
	w.Apply(t, strings.NewReplacer("RECONCILER", w.reconciler.Namespace, "TENANT", w.account.Namespace).Replace(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: reconciler, namespace: RECONCILER}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: deployer, namespace: TENANT}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: tokens, namespace: TENANT}
rules:
- {apiGroups: [""], resources: [serviceaccounts/token], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tokens, namespace: TENANT}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tokens}
subjects: [{kind: ServiceAccount, name: reconciler, namespace: RECONCILER}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: deployer, namespace: TENANT}
rules:
- {apiGroups: [""], resources: [configmaps, secrets, serviceaccounts, services], verbs: [get, list, create, patch, delete]}
- {apiGroups: [tenant.e2e.metio.wtf], resources: ["*"], verbs: ["*"]}
- {apiGroups: [dead.e2e.metio.wtf], resources: ["*"], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: deployer, namespace: TENANT}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: deployer}
subjects: [{kind: ServiceAccount, name: deployer, namespace: TENANT}]`))
	w.clients = newClients(t, tenant.Options{
		Config: w.TokenConfig(t, w.reconciler.Namespace, w.reconciler.Name), Clock: clock.RealClock{},
	})
	// RBAC of the apiserver is eventually consistent.
	cluster.Eventually(t, func(ctx context.Context) error {
		c, err := w.clients.Target(ctx, tenant.Destination{}, w.account)
		if err != nil {
			return err
		}
		return c.List(ctx, configMap, tenant.ListOptions{Namespace: w.account.Namespace}, func(*unstructured.Unstructured) {})
	})
	return w
}

// object is one in the tenant's namespace; set are fields beside its name.
func (w *world) object(kind, name string, set map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	for key, value := range set {
		object.Object[key] = value
	}
	object.SetAPIVersion("v1")
	object.SetKind(kind)
	object.SetName(name)
	object.SetNamespace(w.account.Namespace)
	return object
}

func apply(t testing.TB, c *tenant.Client, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	applied, err := c.Apply(t.Context(), object, tenant.ApplyOptions{FieldManager: "stageset"})
	if err != nil {
		t.Fatalf("apply %s %s: %v", object.GetKind(), object.GetName(), err)
	}
	return applied
}

// The apiserver sees the tenant in everything but the request for its token (T-17).
func TestTheAPIServerSeesTheAccount(t *testing.T) {
	w := newWorld(t)
	mark := w.Audit(t)
	clients := newClients(t, tenant.Options{Config: w.TokenConfig(t, w.reconciler.Namespace, w.reconciler.Name)})
	c := clientFor(t, clients, w.account)
	applied := apply(t, c, w.object("ConfigMap", "app", nil))
	if _, err := c.Get(t.Context(), configMap, w.account.Namespace, "app"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Delete(t.Context(), configMap, w.account.Namespace, "app",
		tenant.DeleteOptions{UID: applied.GetUID(), ResourceVersion: applied.GetResourceVersion()}); err != nil {
		t.Fatal(err)
	}

	ours, theirs := []string{}, []string{}
	for _, event := range mark.Since(t, cluster.ByAccount(w.reconciler.Namespace, w.reconciler.Name)) {
		ours = append(ours, strings.Join([]string{event.Verb, event.Resource, event.Subresource, event.Name}, " "))
	}
	for _, event := range mark.Since(t, cluster.ByAccount(w.account.Namespace, w.account.Name)) {
		path, _, _ := strings.Cut(event.URI, "?")
		theirs = append(theirs, event.Verb+" "+path)
	}
	if diff := cmp.Diff([]string{"create serviceaccounts token deployer"}, ours); diff != "" {
		t.Errorf("requests of the reconciler (-want +got):\n%s", diff)
	}
	path := "/api/v1/namespaces/" + w.account.Namespace + "/configmaps/app"
	if diff := cmp.Diff([]string{"get /api/v1", "patch " + path, "get " + path, "delete " + path}, theirs); diff != "" {
		t.Errorf("requests of the tenant (-want +got):\n%s", diff)
	}
}

// Without a token request "not found", "forbidden to the tenant" and "forbidden to us" look alike (T-05).
func TestAccountsThatCannotBeUsed(t *testing.T) {
	w := newWorld(t)
	other := w.Namespace(t, "other")
	// May ask for tokens anywhere, so that a missing namespace is not hidden by missing permissions.
	everywhere := newClients(t, tenant.Options{Config: w.Config})
	for name, test := range map[string]struct {
		clients *tenant.Clients
		account tenant.Account
		reason  string
		message string
	}{
		"no such account": {w.clients, tenant.Account{Namespace: w.account.Namespace, Name: "typo"},
			v1.ReasonServiceAccountNotFound,
			"service account " + w.account.Namespace + "/typo does not exist: create it, or correct serviceAccountName"},
		"no such namespace": {everywhere, tenant.Account{Namespace: "nowhere", Name: "deployer"},
			v1.ReasonServiceAccountNotFound,
			"service account nowhere/deployer does not exist: create it, or correct serviceAccountName"},
		"a namespace where the reconciler may not": {w.clients, tenant.Account{Namespace: other, Name: "default"},
			v1.ReasonPermissionsMissing,
			"the reconciler itself may not create serviceaccounts/token in namespace " + other +
				", so nothing can be done as service account " + other + `/default: serviceaccounts "default" is forbidden: ` +
				`User "system:serviceaccount:` + w.reconciler.Namespace + `:reconciler" cannot create resource ` +
				`"serviceaccounts/token" in API group "" in the namespace "` + other + `"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := test.clients.Target(t.Context(), tenant.Destination{}, test.account)
			checkFailure(t, err, &failure.Error{Reason: test.reason, Kind: failure.Stalled}, test.message)
		})
	}
}

// A token dies with its account; a new account of that name works at once, with the client that there is (T-08).
func TestAccountThatIsDeletedAndMadeAgain(t *testing.T) {
	w := newWorld(t)
	c := clientFor(t, w.clients, w.account)
	apply(t, c, w.object("ConfigMap", "app", nil))
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.account.Namespace, Name: w.account.Name}}
	if err := w.Client(t).Delete(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	// The apiserver itself believes in a token that it has seen for some seconds.
	cluster.Eventually(t, func(ctx context.Context) error {
		_, err := c.Get(ctx, configMap, w.account.Namespace, "app")
		if failed := (*failure.Error)(nil); errors.As(err, &failed) && failed.Reason == v1.ReasonServiceAccountNotFound {
			return nil
		}
		return fmt.Errorf("got %v, want ServiceAccountNotFound", err)
	})
	fresh := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.account.Namespace, Name: w.account.Name}}
	if err := w.Client(t).Create(t.Context(), fresh); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), configMap, w.account.Namespace, "app"); err != nil {
		t.Errorf("the client that there was: %v", err)
	}
}

func TestWhatTheAccountMayNot(t *testing.T) {
	w := newWorld(t)
	c := clientFor(t, w.clients, w.account)
	err := c.List(t.Context(), schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
		tenant.ListOptions{Namespace: w.account.Namespace}, func(*unstructured.Unstructured) {})
	checkFailure(t, tenant.Explain(err, "list Deployments", tenant.Reasons{}),
		&failure.Error{Reason: v1.ReasonPermissionsMissing, Kind: failure.Stalled},
		`list Deployments: deployments.apps is forbidden: User "system:serviceaccount:`+w.account.Namespace+
			`:deployer" cannot list resource "deployments" in API group "apps" in the namespace "`+w.account.Namespace+`"`)
}

// Many goroutines as several accounts, each seen by the apiserver as itself.
func TestManyAccountsAtOnce(t *testing.T) {
	w := newWorld(t)
	mark := w.Audit(t)
	accounts := []string{"a", "b", "c", "d"}
	for _, name := range accounts {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.account.Namespace, Name: name}}
		if err := w.Client(t).Create(t.Context(), account); err != nil {
			t.Fatal(err)
		}
	}
	var group sync.WaitGroup
	for _, name := range accounts {
		for range 10 {
			group.Go(func() {
				c, err := w.clients.Target(t.Context(), tenant.Destination{}, tenant.Account{Namespace: w.account.Namespace, Name: name})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := c.Get(t.Context(), configMap, w.account.Namespace, name); !apierrors.IsForbidden(err) {
					t.Errorf("%s got %v, want Forbidden", name, err)
				}
			})
		}
	}
	group.Wait()
	for _, name := range accounts {
		for _, event := range mark.Since(t, cluster.ByAccount(w.account.Namespace, name)) {
			if event.Resource == "configmaps" && event.Name != name {
				t.Errorf("%s was seen as %s", event.Name, name)
			}
		}
	}
	tokens := mark.Since(t, cluster.ByAccount(w.reconciler.Namespace, w.reconciler.Name))
	if len(tokens) != len(accounts) {
		t.Errorf("the reconciler made the requests %v, want one for each account", tokens)
	}
}
