package up

import (
	"context"
	_ "embed" // the stages below
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

//go:embed kwok.yaml
var kwokStages []byte

// nodeNames are the nodes that KWOK pretends to run.
var nodeNames = []string{"node-1", "node-2"}

func kwokCommand(d *directory) []string {
	return []string{
		"kwok",
		"--kubeconfig=" + d.file("kwok.kubeconfig"),
		"--config=" + d.file("kwok.yaml"),
		"--manage-all-nodes",
		"--node-ip=127.0.0.1",
		"--node-port=0", // otherwise it listens on every address
	}
}

// startNodes runs the scheduler and KWOK, and waits until the nodes take Pods.
func (c *cluster) startNodes(ctx context.Context) error {
	if err := c.directory.write("kwok.yaml", kwokStages); err != nil {
		return err
	}
	if err := c.startSelf(schedulerCommand(c.directory)); err != nil {
		return err
	}
	if err := c.group.start(c.options.kwok, kwokCommand(c.directory)); err != nil {
		return err
	}
	for _, name := range nodeNames {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux"},
		}}
		_, err := c.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("making node %s: %w", name, err)
		}
	}
	return c.group.await(ctx, "the nodes to take Pods", c.nodesReady)
}

func (c *cluster) nodesReady(ctx context.Context) error {
	for _, name := range nodeNames {
		node, err := c.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(node.Spec.Taints) > 0 || !ready(node) {
			return fmt.Errorf("node %s is not ready (taints: %v)", name, node.Spec.Taints)
		}
	}
	return nil
}

func ready(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
