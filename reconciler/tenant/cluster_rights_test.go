package tenant_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/reconciler/tenant"
)

// reviews are the questions about the account of the world since the mark.
func (w *world) reviews(t *testing.T, mark cluster.AuditMark) []string {
	t.Helper()
	var asked []string
	for _, event := range mark.Since(t, cluster.ByAccount(w.account.Namespace, w.account.Name)) {
		if event.Group == "authorization.k8s.io" {
			asked = append(asked, event.Resource)
		}
	}
	return asked
}

// What an account lacks is what the API server says of it, also in a namespace that there is not, and in none.
func TestMissing(t *testing.T) {
	w := newWorld(t)
	c := clientFor(t, w.clients, w.account)
	own := w.account.Namespace
	on := func(verb, resource, namespace, name string) tenant.Permission {
		return tenant.Permission{Verb: verb, Resource: resource, Namespace: namespace, Name: name}
	}
	needed := tenant.Permissions{
		on("patch", "configmaps", own, "a"), on("patch", "configmaps", own, "b"), on("update", "configmaps", own, "a"),
		on("get", "pods", own, "a"), on("get", "configmaps", own+"-absent", "a"), on("get", "namespaces", "", "a"),
	}
	mark := w.Audit(t)
	missing, err := c.Missing(t.Context(), needed, false)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(needed[2:], missing); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	if asked := w.reviews(t, mark); len(asked) != 3 {
		t.Errorf("asked %v, want one question for each of two namespaces, and one about what is in none", asked)
	}
}

// That an account has a permission is believed for half a minute; that it does not, never.
func TestMissingRemembersWhatIsAllowed(t *testing.T) {
	w := newWorld(t)
	passive := clocktesting.NewFakePassiveClock(time.Now())
	clients := newClients(t, tenant.Options{
		Config: w.TokenConfig(t, w.reconciler.Namespace, w.reconciler.Name), Clock: passive,
	})
	c := clientFor(t, clients, w.account)
	allowed := tenant.Permissions{{Verb: "get", Resource: "configmaps", Namespace: w.account.Namespace, Name: "a"}}
	denied := tenant.Permissions{{Verb: "get", Resource: "pods", Namespace: w.account.Namespace, Name: "a"}}
	began := passive.Now()
	for number, step := range []struct {
		at           time.Duration
		needed       tenant.Permissions
		fresh        bool
		asked, lacks int
	}{
		{needed: allowed, asked: 1},
		{at: 29 * time.Second, needed: allowed},
		{at: 29 * time.Second, needed: denied, asked: 1, lacks: 1},
		{at: 30 * time.Second, needed: denied, asked: 1, lacks: 1},
		{at: 30 * time.Second, needed: allowed, fresh: true, asked: 1},
		{at: 59 * time.Second, needed: allowed},
		{at: 61 * time.Second, needed: allowed, asked: 1},
	} {
		t.Run(fmt.Sprint(number), func(t *testing.T) {
			passive.SetTime(began.Add(step.at))
			mark := w.Audit(t)
			missing, err := c.Missing(t.Context(), step.needed, step.fresh)
			if err != nil || len(missing) != step.lacks {
				t.Errorf("missing %v, %v, want %d", missing, err, step.lacks)
			}
			if asked := w.reviews(t, mark); len(asked) != step.asked {
				t.Errorf("asked %v, want %d questions", asked, step.asked)
			}
		})
	}
}

// An account is told apart from one that had its name before.
func TestRightsAreThoseOfTheAccountThatIs(t *testing.T) {
	w := newWorld(t)
	first := clientFor(t, w.clients, w.account)
	needed := tenant.Permissions{{Verb: "get", Resource: "configmaps", Namespace: w.account.Namespace, Name: "a"}}
	if missing, err := first.Missing(t.Context(), needed, false); err != nil || len(missing) > 0 {
		t.Fatal(missing, err)
	}
	account := cluster.Ref("v1", "ServiceAccount", w.account.Namespace, w.account.Name)
	if err := w.Client(t).Delete(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	w.Apply(t, fmt.Sprintf("{apiVersion: v1, kind: ServiceAccount, metadata: {name: %s, namespace: %s}}",
		w.account.Name, w.account.Namespace))
	cluster.Eventually(t, func(ctx context.Context) error { // until the old token is refused, and a new one requested
		if _, err := first.Get(ctx, configMap, w.account.Namespace, "absent"); err != nil && first.UID() == "" {
			return err
		}
		again, err := w.clients.Target(ctx, tenant.Destination{}, w.account)
		if err != nil {
			return err
		}
		if again.UID() == first.UID() {
			return fmt.Errorf("the client is still that of %s", first.UID())
		}
		mark := w.Audit(t)
		if missing, err := again.Missing(ctx, needed, false); err != nil || len(missing) > 0 {
			return fmt.Errorf("missing %v, %w", missing, err)
		}
		if asked := w.reviews(t, mark); len(asked) != 1 {
			t.Errorf("asked %v, want a question about the new account", asked)
		}
		return nil
	})
}

func TestResource(t *testing.T) {
	w := newWorld(t)
	c := clientFor(t, w.clients, w.account)
	for kind, want := range map[schema.GroupVersionKind]string{
		{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"}: "ingresses", configMap: "configmaps",
	} {
		if got, err := c.Resource(t.Context(), kind); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", kind.Kind, got, err, want)
		}
	}
}
