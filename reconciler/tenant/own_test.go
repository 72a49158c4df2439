package tenant_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/tenant"
)

var (
	// nobody stands for StageSets that name no account.
	nobody = tenant.Account{Namespace: deployer.Namespace}
	// byNobody is where the Secret leads those.
	byNobody = tenant.Reference{Reader: nobody, KubeConfig: remote.KubeConfig}
)

// ownHub is a hub where StageSets may name no account in one namespace.
func ownHub(t testing.TB, namespace string) (*hub, *faulty) {
	t.Helper()
	server := newFaulty(t)
	server.own = true
	allowed := func(name string) bool { return name == namespace }
	return hubOf(t, server, tenant.Options{Dialer: loopback(), Own: allowed}), server
}

// byKubeconfig is a client of the cluster that the Secret leads to now, for a stage whose StageSet names no account.
func (h *hub) byKubeconfig(t testing.TB, account tenant.Account) *tenant.Client {
	t.Helper()
	to, err := h.Destination(t.Context(), byNobody)
	if err != nil {
		t.Fatal(err)
	}
	client, err := h.Target(t.Context(), to, account)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Where no account has to be named, the reconciler reads the Secret, and the kubeconfig's user acts as himself. What the
// reconciler proves itself with stays here. A stage that names an account has that one's rights.
func TestAnotherClusterWithoutAnAccount(t *testing.T) {
	there := newElsewhere(t)
	h, here := ownHub(t, nobody.Namespace)
	h.config.Store(kubeconfig(at(there.URL, there.ca()), "token: t"))
	client := h.byKubeconfig(t, nobody)
	if err := get(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[asked]bool{{Authorization: "Bearer t"}: true}, there.askers()); diff != "" {
		t.Errorf("asked by (-want +got):\n%s", diff)
	}
	read := []request{{Method: "GET", Path: "/api/v1/namespaces/payments/secrets/remote", Token: "own"}}
	if diff := cmp.Diff(read, here.seen()); diff != "" {
		t.Errorf("asked here (-want +got):\n%s", diff)
	}
	if got, want := client.Account().Username(), "the user that kubeConfig leads to"; got != want {
		t.Errorf("it is %q, want %q", got, want)
	}
	there.forbids.Store(true)
	if err := get(t.Context(), client); !apierrors.IsForbidden(err) {
		t.Errorf("refused with %v, want what the server says", err)
	}
	there.forbids.Store(false)

	if err := get(t.Context(), h.byKubeconfig(t, deployer)); err != nil {
		t.Fatal(err)
	}
	if want := (asked{"Bearer t", deployer.Username()}); !there.askers()[want] {
		t.Errorf("asked by %v, want %v", there.askers(), want)
	}
}

// What is known of the rights of one kubeconfig's user is not believed of another's.
func TestRightsOfUsersOfKubeconfigs(t *testing.T) {
	there := newElsewhere(t)
	h, _ := ownHub(t, nobody.Namespace)
	needed := tenant.Permissions{{Verb: "get", Resource: "configmaps", Namespace: "payments"}}
	for _, token := range []string{"a", "b"} {
		h.config.Store(kubeconfig(at(there.URL, there.ca()), "token: "+token))
		if _, err := h.byKubeconfig(t, nobody).Missing(t.Context(), needed, false); err != nil {
			t.Fatal(err)
		}
		if !there.askers()[asked{Authorization: "Bearer " + token}] {
			t.Errorf("asked by %v, want the user with token %s too", there.askers(), token)
		}
	}
}

// Elsewhere an account is needed to read the Secret, and to act by what an inventory recorded without one; and everywhere
// to read a ConfigMap.
func TestAnotherClusterNeedsAnAccount(t *testing.T) {
	there := newElsewhere(t)
	h, here := ownHub(t, "platform")
	h.config.Store(kubeconfig(at(there.URL, there.ca()), "token: t"))
	refused := func(what string, err error, message string) {
		t.Helper()
		if failed := failure.From(err); failed.Reason != v1.ReasonServiceAccountRequired || failed.Kind != failure.Stalled ||
			failed.Error() != message {
			t.Errorf("%s: %s %s: %v, want %q", what, failed.Reason, failed.Kind, err, message)
		}
	}
	const notAllowed = "no ServiceAccount in namespace payments is named, and --allow-controller-identity does not allow the " +
		"reconciler's own there"
	_, err := h.Destination(t.Context(), byNobody)
	refused("the Secret", err, "spec.kubeConfig is read as spec.serviceAccountName: set it: "+notAllowed)
	configMap := v1.InventoryKubeConfig{Kind: v1.KubeConfigConfigMap, Name: "remote"}
	_, err = h.Destination(t.Context(), tenant.Reference{Reader: tenant.Account{Namespace: "platform"}, KubeConfig: configMap})
	refused("a ConfigMap", err, "spec.kubeConfig.configMapRef is read as spec.serviceAccountName, whose rights say whose "+
		"token is used; the reconciler's own identity never is: set it")
	if seen := here.seen(); len(seen) > 0 {
		t.Errorf("asked here: %v", seen)
	}

	to, err := h.Destination(t.Context(), remote)
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Target(t.Context(), to, nobody)
	refused("an inventory", err, notAllowed)
	if seen := there.askers(); len(seen) > 0 {
		t.Errorf("asked by %v", seen)
	}
}
