package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stageset/stageset/e2e/cluster"
	"github.com/stageset/stageset/e2e/process"
)

// A replica that leads and gets no answer any more ends by itself, while its lease still keeps everybody else from leading, as
// docs/operations.md says; then another one goes on.
func TestWhoLeadsAndGetsNoAnswerEnds(t *testing.T) {
	s := setup(t)
	s.stopReconciler(t)
	n := s.tenant(t)
	key := hashKey(t)
	first := s.replica(t, key)
	changing := n.changing(t, 6)
	changing.until(t, "the first replica applies", func() bool { return first.applied() >= 50 })
	second := s.replica(t, key)
	first.journal.away.Store(true)
	select {
	case <-first.process.Done():
	case <-time.After(2 * cluster.Timeout):
		t.Fatal("the replica without answers goes on")
	}
	ended := time.Now()
	if code := first.process.State().ExitCode(); code <= 0 {
		t.Errorf("it ended with %d, as if it had been asked to", code)
	}
	if output := first.process.Output(); !strings.Contains(output, "leader election lost") {
		t.Errorf("it does not say why it ended:\n%s", output)
	}
	changing.until(t, "the second replica applies", func() bool { return second.applied() >= 50 })
	lead := second.journal.find(func(w write) bool { return w.stored && w.lease() })[0]
	if !ended.Before(lead.begin) {
		t.Errorf("it ended at %s, when another one led already, since %s", ended, lead.begin)
	}
	changing.ended(t)
}

// A replica that does not lead is ready once its caches are filled, those of sources among them: a roll-out ends the one that leads
// for it.
func TestReadyIsWhoCouldLead(t *testing.T) {
	s := setup(t)
	s.stopReconciler(t)
	n := s.tenant(t)
	first := s.replica(t, hashKey(t))
	revision := n.source(t, "app", map[string]string{"config.yaml": configMap("app", "1")})
	n.stageSet(t, "app", `{"serviceAccountName": "deployer", "stages": [
		{"name": "app", "sourceRef": {"kind": "GitRepository", "name": "app"}}]}`)
	n.waitReady(t, "app", "app", revision)
	if first.applied() == 0 {
		t.Fatal("the first replica does not lead")
	}

	relay := s.relay(t)
	sources := &entrance{next: relay.next, resource: "/gitrepositories", reached: make(chan struct{}), open: make(chan struct{})}
	relay.next = sources
	options := reconcilerOptions(t, s.Cluster, "127.0.0.1", "--leader-elect",
		"--kubeconfig", s.WriteKubeconfig(t, relay.config(s.TokenConfig(t, system, programReconciler))))
	readiness := options.ReadyURL
	options.ReadyURL = strings.TrimSuffix(readiness, "readyz") + "healthz"
	process.Start(t, options)
	select {
	case <-sources.reached:
	case <-time.After(cluster.Timeout):
		t.Fatal("a replica that does not lead reads no sources")
	}
	if code, err := status(t.Context(), readiness); code != http.StatusInternalServerError {
		t.Errorf("without its caches, it is ready: %d, %v", code, err)
	}
	close(sources.open)
	cluster.Eventually(t, func(ctx context.Context) error {
		if code, err := status(ctx, readiness); code != http.StatusOK {
			return fmt.Errorf("with its caches, it is not ready: %d, %v", code, err)
		}
		return nil
	})
}

// entrance holds requests about a resource until it is open.
type entrance struct {
	next          http.RoundTripper
	resource      string
	once          sync.Once
	reached, open chan struct{}
}

// RoundTrip passes a request on, if it may.
func (g *entrance) RoundTrip(request *http.Request) (*http.Response, error) {
	if strings.HasSuffix(request.URL.Path, g.resource) {
		g.once.Do(func() { close(g.reached) })
		select {
		case <-g.open:
		case <-request.Context().Done():
			return nil, request.Context().Err()
		}
	}
	return g.next.RoundTrip(request)
}

// status is how a probe answers.
func status(ctx context.Context, url string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	return response.StatusCode, nil
}
