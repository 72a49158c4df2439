package e2e

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stageset/stageset/e2e/artifacts"
)

// T-102: fifty StageSets use one source; each of its revisions is downloaded once.
func TestOneDownloadForManyStageSets(t *testing.T) {
	const count = 50
	n := shared(t).tenant(t)
	offer := func(value string) artifacts.Artifact {
		artifact := n.Artifacts.Put("gitrepository", n.namespace, "app",
			artifacts.TarGz(t, map[string]string{"config.yaml": configMap("'settings-${NUMBER}'", value)}))
		publish(t, n.Cluster, n.namespace, "app", artifact)
		return artifact
	}
	first := offer("1")
	for i := range count {
		n.stageSet(t, fmt.Sprintf("app-%d", i), fmt.Sprintf(`
serviceAccountName: %s
stages:
- name: app
  sourceRef: {kind: GitRepository, name: app}
  postBuild: {substitute: {NUMBER: "%d"}}`, deployer, i))
	}
	ready := func(artifact artifacts.Artifact) {
		t.Helper()
		var all sync.WaitGroup
		for i := range count {
			all.Go(func() { n.waitReady(t, fmt.Sprintf("app-%d", i), "app", artifact.Revision) })
		}
		all.Wait()
		if got := n.Artifacts.Requests(artifact); got != 1 {
			t.Errorf("%d downloads of revision %s, want 1", got, artifact.Revision)
		}
	}
	ready(first)
	ready(offer("2"))
	n.hasValue(t, "settings-49", "2")
}
