package e2e

import "testing"

// The interval by itself leads to a pass: nobody asks for one, no source changes, and what a release applies is not watched.
// What has another interval is not looked at meanwhile.
func TestIntervalLeadsToAPass(t *testing.T) {
	n := shared(t).tenant(t)
	for name, interval := range map[string]string{"often": "30s", "seldom": "24h"} {
		revision := n.source(t, name, map[string]string{"all.yaml": configMap(name, "1")})
		n.stageSet(t, name, "interval: "+interval+oneStage(name))
		n.waitReady(t, name, name, revision)
	}
	for _, name := range []string{"often", "seldom"} {
		n.patch(t, n.configMap(name), `{"data":{"value":"theirs"}}`)
	}
	n.WaitFor(t, n.configMap("often"), field("1", "data", "value"))
	n.hasValue(t, "seldom", "theirs")
}
