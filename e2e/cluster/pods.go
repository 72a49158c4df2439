package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ReleasePods lets every Pod of the namespace that the label NotReady holds back become Ready. Pods made later from
// the same template are held back again.
func (c *Cluster) ReleasePods(t testing.TB, namespace string) {
	t.Helper()
	pods := &corev1.PodList{}
	err := c.client.List(t.Context(), pods, client.InNamespace(namespace), client.MatchingLabels{NotReady: "true"})
	if err != nil {
		t.Fatalf("listing Pods of %s: %v", namespace, err)
	}
	for i := range pods.Items {
		// A ReplicaSet whose selector has the label would lose the Pod without it, so it stays with another value.
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+NotReady+`":"false"}}}`))
		if err := client.IgnoreNotFound(c.client.Patch(t.Context(), &pods.Items[i], patch)); err != nil {
			t.Fatalf("releasing Pod %s/%s: %v", namespace, pods.Items[i].Name, err)
		}
	}
}
