package cluster_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/gitserver"
	"github.com/stageset/stageset/e2e/ociregistry"
)

func TestSourcesBecomeArtifacts(t *testing.T) {
	c := cluster.Shared(t)
	controller := c.StartSourceController(t)
	namespace := c.Namespace(t, "sources")

	t.Run("a commit in Git", func(t *testing.T) {
		repository := gitserver.New(t, "fleet")
		first := repository.MustCommit(t, map[string]string{"apps/web.yaml": "kind: Deployment\n"})
		apply := func(requested string) {
			c.Apply(t, fmt.Sprintf(`
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata:
  name: fleet
  namespace: %s
  annotations: {reconcile.fluxcd.io/requestedAt: %q}
spec: {url: %q, interval: 1h, ref: {branch: %s}}`, namespace, requested, repository.URL(), gitserver.Branch))
		}
		ref := cluster.Ref("source.toolkit.fluxcd.io/v1", "GitRepository", namespace, "fleet")
		apply("first")
		live := c.WaitFor(t, ref, cluster.Condition("Ready", "True"), revision(gitserver.Branch+"@sha1:"+first))
		download(t, live, controller.Address)

		second := repository.MustCommit(t, map[string]string{"apps/web.yaml": "kind: StatefulSet\n"})
		apply("second")
		c.WaitFor(t, ref, cluster.Condition("Ready", "True"), revision(gitserver.Branch+"@sha1:"+second))
	})

	t.Run("an OCI artifact", func(t *testing.T) {
		registry := ociregistry.New(t)
		digest := registry.MustPush(t, "team/fleet", "v1", map[string]string{"apps/web.yaml": "kind: Deployment\n"})
		c.Apply(t, fmt.Sprintf(`
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: fleet, namespace: %s}
spec: {url: %q, interval: 1h, insecure: true, ref: {tag: v1}}`, namespace, registry.URL("team/fleet")))
		ref := cluster.Ref("source.toolkit.fluxcd.io/v1", "OCIRepository", namespace, "fleet")
		live := c.WaitFor(t, ref, cluster.Condition("Ready", "True"), revision("v1@"+digest))
		download(t, live, controller.Address)
	})
}

// revision holds when the source's artifact has that revision.
func revision(want string) cluster.Predicate {
	return func(source *unstructured.Unstructured) error {
		got, _, err := unstructured.NestedString(source.Object, "status", "artifact", "revision")
		if err != nil || got == want {
			return err
		}
		return fmt.Errorf("the artifact has revision %q, want %q", got, want)
	}
}

// download checks that the artifact of a source can be had from this process.
func download(t *testing.T, source *unstructured.Unstructured, address string) {
	t.Helper()
	url, _, err := unstructured.NestedString(source.Object, "status", "artifact", "url")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(url, "http://"+address+"/") {
		t.Fatalf("the artifact is at %q, want it at %s", url, address)
	}
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK || len(content) == 0 {
		t.Fatalf("%s: %s, %d bytes (%v)", url, response.Status, len(content), err)
	}
}
