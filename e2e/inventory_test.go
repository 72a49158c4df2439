package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// A lost inventory is said, with where to look; what is rendered is recorded again, and what is not is not deleted.
func TestLostInventoryIsFoundAgain(t *testing.T) {
	n := shared(t).tenant(t)
	files := map[string]string{"a.yaml": configMap("a", "1"), "b.yaml": configMap("b", "1")}
	first := n.source(t, "app", files)
	n.stageSet(t, "app", oneStage("app"))
	n.waitReady(t, "app", "app", first)
	a, b := n.uid(t, n.configMap("a")), n.uid(t, n.configMap("b"))

	// b leaves while nobody applies anything, and the inventory with it.
	n.patch(t, n.ref("app"), `{"spec":{"suspend":true}}`)
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "True", v1.ReasonSuspended))
	n.removeInventories(t)
	n.waitEvent(t, "app", "Warning", v1.EventInventoryLost, "the inventory of app is lost")
	delete(files, "b.yaml")
	second := n.source(t, "app", files)
	n.patch(t, n.ref("app"), `{"spec":{"suspend":false}}`)
	n.waitReady(t, "app", "app", second)
	n.unchanged(t, n.configMap("a"), a)
	n.unchanged(t, n.configMap("b"), b)
	if diff := cmp.Diff([]string{"app as deployer: ConfigMap a"}, n.inventory(t, "app")); diff != "" {
		t.Errorf("inventory (-want +got):\n%s", diff)
	}

	// The labels of the event are what kubectl takes.
	output, err := n.kubectl(t, "", "get", "configmaps", "--all-namespaces", "--output=name",
		"--selector="+n.labelsOfLost(t, "app"))
	if want := "configmap/a\nconfigmap/b\n"; err != nil || output != want {
		t.Errorf("kubectl finds %q, want %q (%v)", output, want, err)
	}
}

// T-69: what was made anew, with all labels, as from a backup, is not known to be what was applied. When it leaves the release it
// stays, and is named.
func TestObjectFromABackupIsNamedWhenItLeaves(t *testing.T) {
	n := shared(t).tenant(t)
	revision := n.source(t, "app", map[string]string{"a.yaml": configMap("leaves", "1"), "b.yaml": configMap("stays", "1")})
	n.stageSet(t, "app", oneStage("app"))
	n.waitReady(t, "app", "app", revision)
	n.patch(t, n.ref("app"), `{"spec":{"suspend":true}}`)
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "True", v1.ReasonSuspended))
	restored := n.live(t, n.configMap("leaves"))
	if err := n.Client.Delete(t.Context(), restored.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	restored.SetUID("")
	restored.SetResourceVersion("")
	if err := n.Client.Create(t.Context(), restored); err != nil {
		t.Fatal(err)
	}
	revision = n.source(t, "app", map[string]string{"b.yaml": configMap("stays", "1")})
	n.patch(t, n.ref("app"), `{"spec":{"suspend":false}}`)
	n.waitReady(t, "app", "app", revision)
	n.unchanged(t, n.configMap("leaves"), restored.GetUID())
	n.waitEvent(t, "app", "Warning", v1.EventOrphaned, "it was made anew")
	if diff := cmp.Diff([]string{"app as deployer: ConfigMap stays"}, n.inventory(t, "app")); diff != "" {
		t.Errorf("inventory (-want +got):\n%s", diff)
	}
}

// removeInventories removes all inventories of the tenant, finalizers or not.
func (n *tenant) removeInventories(t *testing.T) {
	t.Helper()
	var list v1.StageInventoryList
	if err := n.Client.List(t.Context(), &list, client.InNamespace(n.namespace)); err != nil {
		t.Fatal(err)
	}
	for _, record := range list.Items {
		ref := cluster.Ref(v1.GroupVersion.String(), "StageInventory", n.namespace, record.Name)
		if err := n.Client.Delete(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		n.patch(t, ref, `{"metadata":{"finalizers":null}}`)
		n.WaitGone(t, ref)
	}
}

// labelsOfLost is the selector that an event about a lost inventory tells.
func (n *tenant) labelsOfLost(t *testing.T, stageSet string) string {
	t.Helper()
	var events eventsv1.EventList
	if err := n.Client.List(t.Context(), &events, client.InNamespace(n.namespace)); err != nil {
		t.Fatal(err)
	}
	for _, event := range events.Items {
		if event.Reason == v1.EventInventoryLost && event.Regarding.Name == stageSet {
			_, selector, _ := strings.Cut(event.Note, "has the labels ")
			return selector
		}
	}
	t.Fatal("there is no event")
	return ""
}

// T-106: a stage of 6,000 objects has an inventory of three parts, of which none is near what etcd takes, and loses nothing.
func TestStageOfManyObjects(t *testing.T) {
	n := shared(t).tenant(t)
	const objects = 6000
	var all strings.Builder
	for i := range objects {
		fmt.Fprintf(&all, "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: c%04d}}\n", i)
	}
	revision := n.source(t, "app", map[string]string{"all.yaml": all.String()})
	n.stageSet(t, "app", "retryInterval: 1s"+oneStage("app"))
	n.configMaps(t, func(count int) bool { return count >= objects })
	cluster.Progressing(t, n.confirmed)
	n.waitReady(t, "app", "app", revision)
	var list v1.StageInventoryList
	if err := n.Client.List(t.Context(), &list, client.InNamespace(n.namespace)); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, shard := range list.Items {
		if len(shard.Spec.Entries) > 2000 {
			t.Errorf("%s has %d entries", shard.Name, len(shard.Spec.Entries))
		}
		for _, entry := range shard.Spec.Entries {
			if entry.UID == "" || entry.RenderedHash == "" {
				t.Fatalf("%s is not confirmed", entry.Name)
			}
			names[entry.Name] = true
		}
	}
	if len(list.Items) != 3 || len(names) != objects {
		t.Errorf("%d objects in %d inventories, want %d in 3", len(names), len(list.Items), objects)
	}
	n.delete(t, "app")
	n.configMaps(t, func(count int) bool { return count < objects/1000 })
	n.gone(t, "app")
	n.absent(t, n.configMap("c0000"), n.configMap(fmt.Sprintf("c%04d", objects-1)))
}

// confirmed is nil when all that the tenant's inventories record was seen to exist.
func (n *tenant) confirmed(ctx context.Context) error {
	var list v1.StageInventoryList
	if err := n.Client.List(ctx, &list, client.InNamespace(n.namespace)); err != nil {
		return err
	}
	missing := 0
	for _, shard := range list.Items {
		for _, entry := range shard.Spec.Entries {
			if entry.UID == "" || entry.RenderedHash == "" {
				missing++
			}
		}
	}
	if missing > 0 {
		return fmt.Errorf("%d objects are not confirmed", missing)
	}
	return nil
}

// configMaps waits until the number of the tenant's ConfigMaps is as wanted, as long as it changes.
func (n *tenant) configMaps(t *testing.T, wanted func(count int) bool) {
	t.Helper()
	cluster.Progressing(t, func(ctx context.Context) error {
		var list corev1.ConfigMapList
		if err := n.Client.List(ctx, &list, client.InNamespace(n.namespace), client.Limit(1)); err != nil {
			return err
		}
		count := len(list.Items)
		if list.RemainingItemCount != nil {
			count += int(*list.RemainingItemCount)
		}
		if !wanted(count) {
			return fmt.Errorf("there are %d ConfigMaps", count)
		}
		return nil
	})
}
