package chart_test

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/e2e/artifacts"
	"github.com/stageset/stageset/e2e/cluster"
)

// tenant is a namespace with an account that is bound to edit, and nothing else.
type tenant struct {
	*release
	namespace string
	artifacts *artifacts.Server
}

// deployer is the account of every tenant.
const deployer = "deployer"

func (r *release) tenant(t *testing.T) *tenant {
	t.Helper()
	n := &tenant{release: r, namespace: r.Namespace(t, "team"), artifacts: artifacts.Start(t)}
	r.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: %[1]s, namespace: %[2]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: %[1]s, namespace: %[2]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{kind: ServiceAccount, name: %[1]s, namespace: %[2]s}]`, deployer, n.namespace))
	return n
}

// commit makes a GitRepository have a ConfigMap of its own name with the value, as source-controller would.
func (n *tenant) commit(t *testing.T, name, value string) (revision string) {
	t.Helper()
	return n.commitMaps(t, name, value, name)
}

// commitMaps makes a GitRepository have ConfigMaps of these names, all with the value.
func (n *tenant) commitMaps(t *testing.T, repositoryName, value string, names ...string) (revision string) {
	t.Helper()
	files := map[string]string{}
	for _, name := range names {
		files[name+".yaml"] = fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {value: %q}}", name, value)
	}
	artifact := n.artifacts.Put("gitrepository", n.namespace, repositoryName, artifacts.TarGz(t, files))
	n.Apply(t, fmt.Sprintf(`
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: %s, namespace: %s}
spec: {url: "https://git.invalid/app", interval: 1h, suspend: true}`, repositoryName, n.namespace))
	repository := n.live(t, "source.toolkit.fluxcd.io/v1", "GitRepository", repositoryName)
	repository.Object["status"] = map[string]any{
		"observedGeneration": repository.GetGeneration(),
		"artifact": map[string]any{
			"url": artifact.URL, "path": artifact.Path, "digest": artifact.Digest, "revision": artifact.Revision,
			"size": int64(artifact.Size), "lastUpdateTime": "2026-01-01T00:00:00Z",
		},
	}
	if err := n.client.Status().Update(t.Context(), repository); err != nil {
		t.Fatal(err)
	}
	return artifact.Revision
}

func (n *tenant) live(t *testing.T, apiVersion, kind, name string) *unstructured.Unstructured {
	t.Helper()
	return n.WaitFor(t, cluster.Ref(apiVersion, kind, n.namespace, name))
}

// stageSet is one of a single stage with the content of the GitRepository of its own name, applied as deployer.
func (n *tenant) stageSet(name string) *unstructured.Unstructured {
	object := cluster.Ref("stages.metio.wtf/v1", "StageSet", n.namespace, name)
	object.Object["spec"] = map[string]any{
		"serviceAccountName": deployer,
		"stages": []any{map[string]any{
			"name": "all", "sourceRef": map[string]any{"kind": "GitRepository", "name": name},
		}},
	}
	return object
}

// create creates a StageSet. Unless the test deletes it, it is deleted after it, while the reconciler still runs.
func (n *tenant) create(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	cluster.Eventually(t, func(ctx context.Context) error { return n.client.Create(ctx, object.DeepCopy()) })
	t.Cleanup(func() { n.delete(uncancelled{t}, object) })
}

// delete deletes a StageSet and waits until it is gone.
func (n *tenant) delete(t testing.TB, object *unstructured.Unstructured) {
	t.Helper()
	if err := client.IgnoreNotFound(n.client.Delete(t.Context(), object)); err != nil {
		t.Error(err)
	}
	n.WaitGone(t, object)
}

// ready waits until a StageSet is Ready with the revision.
func (n *tenant) ready(t *testing.T, object *unstructured.Unstructured, revision string) {
	t.Helper()
	n.WaitFor(t, object, cluster.Condition("Ready", "True"), func(live *unstructured.Unstructured) error {
		applied, _, err := unstructured.NestedStringMap(live.Object, "status", "lastAppliedRevisions")
		if got := applied[n.namespace+"/"+object.GetName()]; got != revision {
			return fmt.Errorf("revision %q, want %q (%v)", got, revision, err)
		}
		return nil
	})
}
