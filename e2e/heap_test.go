package e2e

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// T-100: who waits for one Deployment in a namespace of a thousand Pods asks for the Deployment: nothing of the Pods is kept,
// or even read.
func TestWaitingKeepsNoNamespaceInMemory(t *testing.T) {
	const pods, bytesEach = 1000, 32 << 10
	s := setup(t)
	profiles := newProfiler(t)
	s.ownReconciler(t, profiles.argument())
	n := s.tenant(t)
	var making errgroup.Group
	making.SetLimit(16)
	for number := range pods {
		making.Go(func() error {
			return n.Client.Create(t.Context(), &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: n.namespace, Name: fmt.Sprintf("pod-%04d", number), Labels: map[string]string{cluster.NotReady: "true"},
					Annotations: map[string]string{"filling": strings.Repeat("x", bytesEach)},
				},
				Spec: corev1.PodSpec{
					SchedulerName: "nobody", Containers: []corev1.Container{{Name: "app", Image: "registry.invalid/app:1"}},
				},
			})
		})
	}
	if err := making.Wait(); err != nil {
		t.Fatal(err)
	}
	n.source(t, "app", map[string]string{"web.yaml": heldDeployment("web", "1")})
	before := profiles.live(t)
	mark := n.Audit(t)
	n.stageSet(t, "app", oneStage("app"))
	n.wait(t, "app", phase("app", v1.StageVerifying))
	for number := range 5 {
		n.request(t, "app", fmt.Sprint(number))
		n.wait(t, "app", handled(fmt.Sprint(number)), phase("app", v1.StageVerifying))
	}
	after := profiles.live(t)
	if grown := after - before; grown > 20<<20 {
		t.Errorf("the heap grew by %d MiB while it waited beside %d MiB of Pods", grown>>20, pods*bytesEach>>20)
	}
	for _, event := range mark.Since(t, n.by(deployer)) {
		if event.Resource == "pods" || event.Verb == "watch" {
			t.Errorf("it asked for more than it waits for: %s", event)
		}
	}
}
