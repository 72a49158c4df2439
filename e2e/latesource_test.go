package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stageset/stageset/e2e/artifacts"
	"github.com/stageset/stageset/e2e/cluster"
)

// A kind of source whose definition is installed while the reconciler runs wakes StageSets too.
func TestKindOfSourceThatIsInstalledLater(t *testing.T) {
	s := setup(t)
	s.stopReconciler(t)
	definition := cluster.Ref("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "buckets.source.toolkit.fluxcd.io")
	if err := s.Client.Delete(t.Context(), definition.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	s.WaitGone(t, definition)
	startReconciler(t, s.Cluster, "127.0.0.1")
	s.InstallCRDs(t, os.DirFS(binary(t, "source-controller-crds")))

	n := s.tenant(t)
	first := n.bucket(t, "1")
	n.stageSet(t, "app", "interval: 1h\nserviceAccountName: "+deployer+
		"\nstages: [{name: app, sourceRef: {kind: Bucket, name: app}}]\n")
	n.waitReady(t, "app", "app", first)
	second := n.bucket(t, "2")
	n.waitReady(t, "app", "app", second)
	n.hasValue(t, "a", "2")
}

// bucket makes the Bucket app have an artifact with a ConfigMap of that value, and returns its revision.
func (n *tenant) bucket(t *testing.T, value string) string {
	t.Helper()
	n.Apply(t, fmt.Sprintf(`
apiVersion: source.toolkit.fluxcd.io/v1
kind: Bucket
metadata: {name: app, namespace: %s}
spec: {bucketName: app, endpoint: bucket.invalid, interval: 1h, suspend: true}`, n.namespace))
	artifact := n.Artifacts.Put("bucket", n.namespace, "app", artifacts.TarGz(t, map[string]string{"a.yaml": configMap("a", value)}))
	status, err := json.Marshal(map[string]any{"status": map[string]any{"artifact": map[string]any{
		"url": artifact.URL, "path": artifact.Path, "digest": artifact.Digest, "revision": artifact.Revision,
		"size": artifact.Size, "lastUpdateTime": time.Now().UTC().Format(time.RFC3339),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	bucket := cluster.Ref("source.toolkit.fluxcd.io/v1", "Bucket", n.namespace, "app")
	if err := n.Client.Status().Patch(t.Context(), bucket, client.RawPatch(types.MergePatchType, status)); err != nil {
		t.Fatal(err)
	}
	return artifact.Revision
}
