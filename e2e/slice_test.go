package e2e

import (
	"fmt"
	"testing"

	"github.com/stageset/stageset/e2e/artifacts"
	"github.com/stageset/stageset/e2e/cluster"
)

func TestSlice(t *testing.T) {
	c := cluster.Shared(t)
	install(t, c)
	server := artifacts.Start(t)
	startReconciler(t, c, "127.0.0.1")
	ns := c.Namespace(t, "team-a")
	artifact := server.Put("gitrepository", ns, "app", artifacts.TarGz(t, map[string]string{
		"one/cm.yaml":     "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {a: b}\n",
		"two/deploy.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec: {containers: [{name: web, image: web}]}\n",
	}))
	publish(t, c, ns, "app", artifact)
	c.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: deployer, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: deployer, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: deployer, namespace: %[1]s}]
---
apiVersion: stages.metio.wtf/v1
kind: StageSet
metadata: {name: app, namespace: %[1]s}
spec:
  serviceAccountName: deployer
  stages:
  - name: one
    sourceRef: {kind: GitRepository, name: app}
    path: one
  - name: two
    sourceRef: {kind: GitRepository, name: app}
    path: two
`, ns))
	c.WaitFor(t, cluster.Ref("stages.metio.wtf/v1", "StageSet", ns, "app"), cluster.Condition("Ready", "True"))
}
