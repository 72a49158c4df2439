package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/e2e/cluster"
)

// T-08: an account that was deleted and made again is another one: the token of the first is replaced on the first refusal,
// once, and nobody waits for it or hears of it.
func TestRecreatedAccountIsUsedAtOnce(t *testing.T) {
	n := shared(t).tenant(t)
	first := n.source(t, "app", map[string]string{"config.yaml": configMap("settings", "1")})
	n.stageSet(t, "app", oneStage("app"))
	n.waitReady(t, "app", "app", first)

	// The API server believes a token that it has checked for some seconds; this one was checked later than the reconciler's.
	stale, err := client.New(n.TokenConfig(t, n.namespace, deployer), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(ctx context.Context) error {
		settings := n.configMap("settings")
		return stale.Get(ctx, client.ObjectKeyFromObject(settings), settings)
	}
	if err := ask(t.Context()); err != nil {
		t.Fatal(err)
	}
	account := cluster.Ref("v1", "ServiceAccount", n.namespace, deployer)
	if err := n.Client.Delete(t.Context(), account.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	if err := n.Client.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, func(ctx context.Context) error {
		if err := ask(ctx); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("the token of the deleted account gives %v, want it refused", err)
		}
		return nil
	})

	mark := n.Audit(t)
	second := n.source(t, "app", map[string]string{"config.yaml": configMap("settings", "2")})
	n.waitReady(t, "app", "app", second)
	n.hasValue(t, "settings", "2")
	minted := mark.Since(t, cluster.ByAccount(system, "stageset-reconciler"), func(e cluster.AuditEvent) bool {
		return e.Subresource == "token" && e.Namespace == n.namespace
	})
	if len(minted) != 1 {
		t.Errorf("tokens were requested %d times, want once: %v", len(minted), minted)
	}
	if log := n.log(); strings.Contains(log, "pass failed") {
		t.Errorf("a pass failed:\n%s", log)
	}
}
