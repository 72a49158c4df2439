package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/artifacts"
	"github.com/stageset/stageset/e2e/cluster"
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
		cluster.Progressing(t, func(ctx context.Context) error { return n.allReady(ctx, count, artifact.Revision) })
		if got := n.Artifacts.Requests(artifact); got != 1 {
			t.Errorf("%d downloads of revision %s, want 1", got, artifact.Revision)
		}
	}
	ready(first)
	ready(offer("2"))
	n.hasValue(t, "settings-49", "2")
}

// allReady is nil when so many StageSets of the tenant are Ready at a revision of the source app.
func (n *tenant) allReady(ctx context.Context, count int, revision string) error {
	var list v1.StageSetList
	if err := n.Client.List(ctx, &list, client.InNamespace(n.namespace)); err != nil {
		return err
	}
	ready, message := 0, ""
	for _, set := range list.Items {
		if meta.IsStatusConditionTrue(set.Status.Conditions, v1.ConditionReady) &&
			set.Status.LastAppliedRevisions[n.namespace+"/app"] == revision {
			ready++
			continue
		}
		message = readyMessage(&set)
	}
	if ready < count {
		return fmt.Errorf("%d of %d StageSets are ready at %s; of another: %s", ready, count, revision, message)
	}
	return nil
}

// external makes an ExternalArtifact that points back at a Release, and gives it an artifact with one ConfigMap.
func (n *tenant) external(t testing.TB, name, release, value string) artifacts.Artifact {
	t.Helper()
	n.Apply(t, fmt.Sprintf(`
apiVersion: source.toolkit.fluxcd.io/v1
kind: ExternalArtifact
metadata: {name: %s, namespace: %s}
spec: {sourceRef: {apiVersion: build.example.com/v1beta1, kind: Release, name: %s}}`, name, n.namespace, release))
	artifact := n.Artifacts.Put("externalartifact", n.namespace, name,
		artifacts.TarGz(t, map[string]string{"config.yaml": configMap("settings", value)}))
	status := fmt.Sprintf(`{"status":{"artifact":{"url":%q,"path":%q,"digest":%q,"revision":%q,"lastUpdateTime":"2026-01-01T00:00:00Z"}}}`,
		artifact.URL, artifact.Path, artifact.Digest, artifact.Revision)
	ref := cluster.Ref("source.toolkit.fluxcd.io/v1", "ExternalArtifact", n.namespace, name)
	if err := n.Client.Status().Patch(t.Context(), ref, client.RawPatch(types.MergePatchType, []byte(status))); err != nil {
		t.Fatal(err)
	}
	return artifact
}

// A producer, whose kind the API server does not even know, is found by who points back at it: as the tenant, and as soon as
// somebody does.
func TestProducersAreFoundByWhoPointsBack(t *testing.T) {
	n := shared(t).tenant(t)
	n.external(t, "other", "other", "0")
	const producer = "Release.build.example.com %s/app"
	n.stageSet(t, "app", `
serviceAccountName: `+deployer+`
stages: [{name: app, sourceRef: {apiVersion: build.example.com/v1, kind: Release, name: app}}]`)
	message := n.waitRefused(t, "app", v1.ReasonSourceNotFound)
	if want := "points back at " + fmt.Sprintf(producer, n.namespace); !strings.Contains(message, want) {
		t.Errorf("message %q does not contain %q", message, want)
	}
	first := n.external(t, "app-1f3c", "app", "1")
	n.waitReady(t, "app", "app-1f3c", first.Revision)
	n.hasValue(t, "settings", "1")
	second := n.external(t, "app-1f3c", "app", "2")
	n.waitReady(t, "app", "app-1f3c", second.Revision)
	n.hasValue(t, "settings", "2")

	n.external(t, "forged", "app", "3")
	n.wait(t, "app", cluster.Condition(v1.ConditionReady, "False", v1.ReasonArtifactFailed),
		messageHas("more than one ExternalArtifact points back at "+fmt.Sprintf(producer, n.namespace)+" (app-1f3c, forged)"))
	n.hasValue(t, "settings", "2")
	forged := cluster.Ref("source.toolkit.fluxcd.io/v1", "ExternalArtifact", n.namespace, "forged")
	if err := n.Client.Delete(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	n.waitReady(t, "app", "app-1f3c", second.Revision)

	// Nothing of it was read by anybody else: who may not list is told so.
	n.account(t, "reader")
	n.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: %s}
rules: [{apiGroups: [source.toolkit.fluxcd.io], resources: [externalartifacts], verbs: [get]}]`, n.namespace))
	n.grant(t, n.namespace, "reader", "Role", "reader")
	n.stageSet(t, "reads", `
serviceAccountName: reader
stages: [{name: app, sourceRef: {apiVersion: build.example.com/v1, kind: Release, name: app}}]`)
	n.refusedWhole(t, "reads", v1.ReasonAccessDenied, "grant it list on externalartifacts.source.toolkit.fluxcd.io in namespace "+n.namespace)
	n.stageSet(t, "unversioned", `
serviceAccountName: `+deployer+`
stages: [{name: app, sourceRef: {kind: Release, name: app}}]`)
	n.refusedWhole(t, "unversioned", v1.ReasonPolicyViolation, "known-sources/producer-version", "Release of stage app; correct the kind")
	checkOwnRequests(t, n.suite)
}

// An ExternalArtifact is what a sourceRef means that names no kind.
func TestExternalArtifactIsReleased(t *testing.T) {
	n := shared(t).tenant(t)
	first := n.external(t, "made", "app", "1")
	n.stageSet(t, "app", `
serviceAccountName: `+deployer+`
stages: [{name: app, sourceRef: {name: made}}]`)
	n.waitReady(t, "app", "made", first.Revision)
	second := n.external(t, "made", "app", "2")
	n.waitReady(t, "app", "made", second.Revision)
	n.hasValue(t, "settings", "2")
}
