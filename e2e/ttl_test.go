package e2e

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// A Job that is complete stays as it is. One that its time to live takes away is an object that somebody deleted: the next
// pass applies it, and so it runs, again.
func TestJobThatItsTimeToLiveTakesAwayRunsAgain(t *testing.T) {
	n := shared(t).tenant(t)
	revision := n.source(t, "app", map[string]string{
		"work.yaml": strings.Replace(heldJob("1"), "spec:\n", "spec:\n  ttlSecondsAfterFinished: 86400\n", 1),
	})
	n.stageSet(t, "app", oneStage("app"))
	work := cluster.Ref("batch/v1", "Job", n.namespace, "work")
	n.releasePods(t, work, "Complete")
	n.waitReady(t, "app", "app", revision)
	uid := n.uid(t, work)
	n.pass(t, "app", "complete")
	n.unchanged(t, work, uid)

	n.patch(t, work, `{"spec":{"ttlSecondsAfterFinished":0}}`) // a day has passed
	n.WaitGone(t, work)
	n.request(t, "app", "gone")
	n.WaitFor(t, work, func(live *unstructured.Unstructured) error {
		if live.GetUID() == uid {
			return fmt.Errorf("Job %s is still the first one", live.GetName())
		}
		return nil
	})
	n.waitEvent(t, "app", "Normal", v1.EventDriftCorrected, "Job.batch "+n.namespace+"/work")
	n.releasePods(t, work, "Complete")
	n.waitReady(t, "app", "app", revision)
}
