package cluster_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stageset/stageset/e2e/cluster"
)

func TestPodsBecomeReady(t *testing.T) {
	c := cluster.Shared(t)
	namespace := c.Namespace(t, "pods")
	c.Apply(t, deployment(namespace, ""))
	c.WaitFor(t, cluster.Ref("apps/v1", "Deployment", namespace, "web"), cluster.Condition("Available", "True"))
}

func TestPodBecomesReadyAfterTheAnnotatedTime(t *testing.T) {
	const after = 3 * time.Second
	c := cluster.Shared(t)
	namespace := c.Namespace(t, "slow-pods")
	c.Apply(t, pod(namespace, fmt.Sprintf("annotations: {%s: %s}", cluster.ReadyAfter, after)))
	live := c.WaitFor(t, cluster.Ref("v1", "Pod", namespace, "single"), cluster.Condition("Ready", "True"))
	took := transition(t, live, "Ready").Sub(transition(t, live, "PodScheduled"))
	// Both times are whole seconds.
	if took < after-time.Second {
		t.Errorf("Ready %s after it was scheduled, want %s at least", took, after)
	}
}

func TestPodIsHeldBackUntilItIsReleased(t *testing.T) {
	c := cluster.Shared(t)
	namespace := c.Namespace(t, "held-pods")
	c.Apply(t, deployment(namespace, cluster.NotReady+`: "true"`))
	c.Apply(t, pod(namespace, ""))
	web := cluster.Ref("apps/v1", "Deployment", namespace, "web")

	// A Pod that came later overtakes those that are held back.
	c.WaitFor(t, web, cluster.Condition("Available", "False"))
	c.WaitFor(t, cluster.Ref("v1", "Pod", namespace, "single"), cluster.Condition("Ready", "True"))
	c.WaitFor(t, web, cluster.Condition("Available", "False"))

	c.ReleasePods(t, namespace)
	c.WaitFor(t, web, cluster.Condition("Available", "True"))
}

func deployment(namespace, label string) string {
	return `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: ` + namespace + `}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels:
        app: web
        ` + label + `
    spec:
      containers: [{name: web, image: registry.invalid/web:1}]
`
}

func pod(namespace, metadata string) string {
	return `
apiVersion: v1
kind: Pod
metadata:
  name: single
  namespace: ` + namespace + `
  ` + metadata + `
spec:
  containers: [{name: single, image: registry.invalid/single:1}]
`
}

// transition is when a condition got its present status.
func transition(t *testing.T, object *unstructured.Unstructured, conditionType string) time.Time {
	t.Helper()
	conditions, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range conditions {
		condition := item.(map[string]any)
		if condition["type"] != conditionType {
			continue
		}
		at, err := time.Parse(time.RFC3339, condition["lastTransitionTime"].(string))
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	t.Fatalf("no condition %s", conditionType)
	return time.Time{}
}
