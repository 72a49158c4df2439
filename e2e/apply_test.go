package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// gathering passes requests on, but holds the first dry-runs and the first applies of ConfigMaps until enough of them are
// under way: who sends one after the other never gets an answer.
type gathering struct {
	next   http.RoundTripper
	enough int

	mu      sync.Mutex
	arrived map[bool]int // by whether it is a dry-run
	open    map[bool]chan struct{}
}

func newGathering(next http.RoundTripper, enough int) *gathering {
	return &gathering{
		next: next, enough: enough, arrived: map[bool]int{},
		open: map[bool]chan struct{}{true: make(chan struct{}), false: make(chan struct{})},
	}
}

// RoundTrip waits, if it has to, and passes the request on.
func (g *gathering) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodPatch && strings.Contains(request.URL.Path, "/configmaps/") {
		select {
		case <-g.arrives(request.URL.Query().Has("dryRun")):
		case <-request.Context().Done():
			return nil, request.Context().Err()
		}
	}
	return g.next.RoundTrip(request)
}

func (g *gathering) arrives(dryRun bool) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.arrived[dryRun]++; g.arrived[dryRun] == g.enough {
		close(g.open[dryRun])
	}
	return g.open[dryRun]
}

// T-116: a stage of 200 ConfigMaps costs two requests for each, eight of them at once, and a handful for all.
func TestObjectsOfAWaveAreAppliedAtOnce(t *testing.T) {
	const count, atOnce = 200, 8
	s := setup(t)
	s.stopReconciler(t)
	relay := s.relay(t)
	relay.next = newGathering(relay.next, atOnce)
	startReconciler(t, s.Cluster, "127.0.0.1", "--apply-concurrency", fmt.Sprint(atOnce), "--kubeconfig",
		s.WriteKubeconfig(t, relay.config(s.TokenConfig(t, system, "stageset-reconciler"))))

	n := s.tenant(t)
	manifests := make([]string, 0, count)
	for number := range count {
		manifests = append(manifests, configMap(fmt.Sprintf("map-%03d", number), "1"))
	}
	revision := n.source(t, "app", map[string]string{"app.yaml": documents(manifests...)})
	mark := n.Audit(t)
	n.stageSet(t, "app", oneStage("app"))
	n.waitReady(t, "app", "app", revision)
	var patches, others []string
	for _, event := range mark.Since(t, n.by(deployer)) {
		if line := fmt.Sprintf("%s %s/%s", event.Verb, event.Resource, event.Name); event.Verb == "patch" {
			patches = append(patches, line)
		} else {
			others = append(others, line)
		}
	}
	if len(patches) != 2*count {
		t.Errorf("%d requests patch objects, want two for each of %d", len(patches), count)
	}
	if len(others) > 10 {
		t.Errorf("%d requests besides: %v", len(others), others)
	}
}

// T-58: what the API server remembers of who set what, and a copy of what was applied, would make a large object too large.
func TestLargeObjectIsAppliedTwice(t *testing.T) {
	n := shared(t).tenant(t)
	for _, letter := range []string{"a", "b"} {
		large := strings.Repeat(letter, 900<<10)
		revision := n.source(t, "app", map[string]string{"app.yaml": configMap("large", large)})
		n.stageSet(t, "app", oneStage("app"))
		n.waitReady(t, "app", "app", revision)
		live := n.live(t, n.configMap("large"))
		if got := n.data(t, "large")["value"]; got != large {
			t.Errorf("the value has %d bytes and begins with %.1q, want %d of %s", len(got), got, len(large), letter)
		}
		if managers := live.GetManagedFields(); len(managers) != 1 || len(live.GetAnnotations()) > 0 {
			t.Errorf("managedFields %v and annotations %v, want one manager and none", managers, live.GetAnnotations())
		}
	}
}

// T-53: what server-side apply cannot take is named before it is tried, all of it.
func TestRepeatedKeysAreNamed(t *testing.T) {
	n := shared(t).tenant(t)
	web := strings.Replace(deployment("web", "1"), "{name: app,", "{name: app, env: [{name: A, value: '1'}, {name: A}], "+
		"ports: [{containerPort: 80}, {containerPort: 80}],", 1)
	n.source(t, "app", map[string]string{"app.yaml": documents(configMap("a", "1"), web)})
	mark := n.Audit(t)
	n.stageSet(t, "app", oneStage("app"))
	at := "stage app: Deployment.apps " + n.namespace + "/web (app.yaml:6): spec.template.spec.containers[name app]"
	n.refusedWhole(t, "app", v1.ReasonBuildFailed,
		at+".env has two items with name A", at+".ports has two items with containerPort 80, protocol TCP")
	n.wroteNothing(t, mark)
	ofDeployments := func(e cluster.AuditEvent) bool { return e.Resource == "deployments" }
	if asked := mark.Since(t, n.by(deployer), ofDeployments); len(asked) > 0 {
		t.Errorf("the API server was asked: %v", asked)
	}
}
