package e2e

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// From here to another cluster what was here is deleted here. The same cluster by another URL is another target, but an
// object that is also there belongs to the release: it is kept as it is, and only the record of the old URL goes.
func TestTargetSwitchedThere(t *testing.T) {
	n := shared(t).remote(t)
	revision := n.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	n.stageSet(t, "app", oneStage("app"))
	n.waitReady(t, "app", "app", revision)
	n.WaitFor(t, n.configMap("a"))

	file := kubeconfigOf(t, n.there.TokenConfig(t, "default", hub))
	direct := file.cluster["server"].(string)
	n.stageSet(t, "app", toOther("app", "remote"))
	uid := n.there.WaitFor(t, n.configMap("a")).GetUID()
	n.WaitGone(t, n.configMap("a"))
	n.waitOnlyAt(t, "app", direct)

	line := newLine(t, strings.TrimPrefix(direct, "https://"))
	file.cluster["server"] = "https://" + line.Addr().String()
	n.kubeconfig(t, "line", file)
	n.stageSet(t, "app", toOther("app", "line"))
	n.waitOnlyAt(t, "app", "https://"+line.Addr().String())
	live := n.there.WaitFor(t, n.configMap("a"))
	if live.GetUID() != uid || live.GetDeletionTimestamp() != nil {
		t.Errorf("the object has UID %s and deletionTimestamp %v, want UID %s and none",
			live.GetUID(), live.GetDeletionTimestamp(), uid)
	}
}

// waitOnlyAt waits until a StageSet is Ready and its inventories, of which there is one, are all of the server.
func (n *tenant) waitOnlyAt(t testing.TB, stageSet, server string) {
	t.Helper()
	n.wait(t, stageSet, cluster.Condition(v1.ConditionReady, "True", v1.ReasonSucceeded),
		n.recordsOnly(stageSet, fmt.Sprintf("%x", sha256.Sum256([]byte(server)))))
	if recorded := n.inventory(t, stageSet); len(recorded) != 1 {
		t.Errorf("the inventories record %v, want one object", recorded)
	}
}
