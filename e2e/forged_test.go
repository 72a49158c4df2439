package e2e

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// The attack of an inventory with entries that nobody applied, as if role and fence had failed: an object that the account may
// not reach is refused by RBAC, in words, and one that another StageSet has applied is left alone, also if the account may
// delete it.
func TestForgedInventoryDeletesNothingOfOthers(t *testing.T) {
	s := shared(t)
	far, n := s.tenant(t), s.tenant(t)
	for n, name := range map[*tenant]string{far: "a", n: "near"} {
		revision := n.source(t, name, map[string]string{"a.yaml": configMap(name, "1")})
		n.stageSet(t, name, oneStage(name))
		n.waitReady(t, name, name, revision)
	}
	revision := n.source(t, "app", map[string]string{"own.yaml": configMap("own", "1")})
	n.stageSet(t, "app", oneStage("app"))
	n.waitReady(t, "app", "app", revision)

	theirs, near := far.live(t, far.configMap("a")), n.live(t, n.configMap("near"))
	n.forge(t, "app", theirs, near)
	n.delete(t, "app")
	n.wait(t, "app", messageHas(fmt.Sprintf("cannot delete ConfigMap %s/a", far.namespace)), messageHas("is forbidden"),
		cluster.Condition(v1.ConditionReady, "False", v1.ReasonPermissionsMissing))
	n.absent(t, n.configMap("own"))
	n.forget(t, "app", theirs)
	n.gone(t, "app")
	far.unchanged(t, theirs, theirs.GetUID())
	n.unchanged(t, near, near.GetUID())
}

// forge adds objects to the inventory of a StageSet, as if it had applied them.
func (n *tenant) forge(t testing.TB, stageSet string, objects ...*unstructured.Unstructured) {
	t.Helper()
	n.rewrite(t, stageSet, func(entries []v1.InventoryEntry) []v1.InventoryEntry {
		for _, object := range objects {
			entry := entries[0]
			entry.Namespace, entry.Name = object.GetNamespace(), object.GetName()
			entry.UID, entry.ResourceVersion = object.GetUID(), object.GetResourceVersion()
			entries = append(entries, entry)
		}
		return entries
	})
}

// forget takes an object out of the inventory of a StageSet.
func (n *tenant) forget(t testing.TB, stageSet string, object *unstructured.Unstructured) {
	t.Helper()
	n.rewrite(t, stageSet, func(entries []v1.InventoryEntry) (rest []v1.InventoryEntry) {
		for _, entry := range entries {
			if entry.Namespace != object.GetNamespace() || entry.Name != object.GetName() {
				rest = append(rest, entry)
			}
		}
		return rest
	})
}

// rewrite changes the entries of the inventory of a StageSet, as an administrator can.
func (n *tenant) rewrite(t testing.TB, stageSet string, change func([]v1.InventoryEntry) []v1.InventoryEntry) {
	t.Helper()
	cluster.Eventually(t, func(ctx context.Context) error {
		var list v1.StageInventoryList
		if err := n.Client.List(ctx, &list, client.InNamespace(n.namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			if record := &list.Items[i]; record.Spec.StageSet == stageSet {
				record.Spec.Entries = change(record.Spec.Entries)
				return n.Client.Update(ctx, record)
			}
		}
		return fmt.Errorf("StageSet %s has no inventory", stageSet)
	})
}
