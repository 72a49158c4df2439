package e2e

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// inVersion is a manifest of version v1 in another one.
func inVersion(version, manifest string) string {
	return strings.Replace(manifest, "/v1\n", "/"+version+"\n", 1)
}

// An object that was applied in a version that is gone can be applied in no version, until its managedFields are moved to one
// that there is. What the release has set is still its own then: a field that leaves the manifest goes.
func TestReleaseGoesOnAfterItsVersionWasDropped(t *testing.T) {
	n := shared(t).tenant(t)
	kind := n.gadgets(t)
	n.serve(t, kind, "v1", "v1alpha1")
	gadget := kind.ref(n.namespace, "gadget")
	first := n.source(t, "app", map[string]string{
		"app.yaml": strings.Replace(inVersion("v1alpha1", kind.manifest("gadget")), "size: 1", "size: 1, color: red", 1),
	})
	n.stageSet(t, "app", oneStage("app"))
	n.condition(t, gadget, "Ready", "True", "Wound", "it ticks")
	n.waitReady(t, "app", "app", first)
	if err := field("red", "spec", "color")(n.live(t, gadget)); err != nil {
		t.Fatal(err)
	}

	n.drop(t, kind, cluster.Ref(kind.group+"/v1alpha1", "Gadget", n.namespace, "gadget"))
	second := n.source(t, "app", map[string]string{"app.yaml": kind.manifest("gadget")})
	n.wait(t, "app", n.revision("lastAttemptedRevisions", "app", second))
	n.condition(t, n.WaitFor(t, gadget, field("", "spec", "color")), "Ready", "True", "Wound", "it ticks")
	n.waitReady(t, "app", "app", second)
	n.ownedBy(t, "app", map[string][]client.Object{"app": {gadget}})
	n.noEvent(t, "app", v1.EventDriftCorrected)
}

// As long as anybody's entry is in a version that is gone, the API server notes of no write who made it.
func TestDriftIsFoundAfterAVersionWasDropped(t *testing.T) {
	n := shared(t).tenant(t)
	kind := n.gadgets(t)
	n.serve(t, kind, "v1", "v1alpha1")
	gadget := kind.ref(n.namespace, "gadget")
	revision := n.source(t, "app", map[string]string{"app.yaml": kind.manifest("gadget")})
	n.stageSet(t, "app", "interval: 24h"+oneStage("app"))
	n.condition(t, gadget, "Ready", "True", "Wound", "it ticks")
	n.waitReady(t, "app", "app", revision)
	theirs := cluster.Ref(kind.group+"/v1alpha1", "Gadget", n.namespace, "gadget")
	theirs.Object["spec"] = map[string]any{"color": "red"}
	n.applyAs(t, theirs, "somebody")
	n.condition(t, gadget, "Ready", "True", "Wound", "it ticks")
	n.pass(t, "app", "settle")

	n.drop(t, kind, theirs)
	before := n.live(t, gadget).GetManagedFields()
	n.patch(t, gadget, `{"spec":{"size":2}}`)
	if diff := cmp.Diff(before, n.live(t, gadget).GetManagedFields()); diff != "" {
		t.Fatalf("managedFields tell of the write, so this test shows nothing (-before +after):\n%s", diff)
	}
	n.request(t, "app", "correct")
	n.condition(t, n.WaitFor(t, gadget, number(1, "spec", "size")), "Ready", "True", "Wound", "it ticks")
	n.pass(t, "app", "settled")
	n.waitEvent(t, "app", "Normal", v1.EventDriftCorrected, "/gadget: spec.size")
	n.ownedBy(t, "app", map[string][]client.Object{"app": {gadget}})
	if err := field("red", "spec", "color")(gadget); err != nil {
		t.Errorf("what somebody else had set: %v", err)
	}
}
