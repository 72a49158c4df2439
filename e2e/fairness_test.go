package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/artifacts"
	"github.com/stageset/stageset/e2e/cluster"
)

// gate holds requests until it is opened.
type gate struct {
	asked  chan struct{}
	opened chan struct{}
	open   func()
	// present is how many requests are held, and most how many were at once.
	present, most atomic.Int32
}

// newGate is one that is open after the test.
func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{asked: make(chan struct{}, 1000), opened: make(chan struct{})}
	g.open = sync.OnceFunc(func() { close(g.opened) })
	t.Cleanup(g.open)
	return g
}

// hold returns when the gate is open, or the context has ended.
func (g *gate) hold(ctx context.Context) {
	defer g.present.Add(-1)
	now := g.present.Add(1)
	for seen := g.most.Load(); now > seen && !g.most.CompareAndSwap(seen, now); seen = g.most.Load() {
	}
	select {
	case g.asked <- struct{}{}:
	default: // nobody waits for so many
	}
	select {
	case <-g.opened:
	case <-ctx.Done():
	}
}

// startSlowServer serves the suite's artifacts: it begins to answer, and does not go on before the gate is open.
func (s *suite) startSlowServer(t *testing.T) (url string, slow *gate) {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	t.Cleanup(server.Close)
	slow = newGate(t) // opened before the server waits for its last answers
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		w.WriteHeader(http.StatusOK) // who gets no header gives up after half a minute
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		slow.hold(request.Context())
		s.Artifacts.ServeHTTP(w, request)
	})
	server.Start()
	return server.URL, slow
}

// slowStageSets makes StageSets of the tenant, each with a ConfigMap and a source of its own, which the server at the URL
// serves: nobody waits for the download of somebody else. They are called slow-0, slow-1 and so on, as all they have; it
// returns the revision of each one's source.
func (n *tenant) slowStageSets(t *testing.T, url string, count int) []string {
	t.Helper()
	revisions := make([]string, count)
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(8)
	for i := range count {
		name := fmt.Sprintf("slow-%d", i)
		artifact := n.Artifacts.Put("gitrepository", n.namespace, name,
			artifacts.TarGz(t, map[string]string{"a.yaml": configMap(name, "1")}))
		artifact.URL = url + "/" + artifact.Path
		publish(t, n.Cluster, n.namespace, name, artifact)
		revisions[i] = artifact.Revision
		group.Go(func() error {
			set := &v1.StageSet{}
			set.Namespace, set.Name = n.namespace, name
			set.Spec.ServiceAccountName = deployer
			set.Spec.Stages = []v1.Stage{{
				Name: "app", SourceRef: v1.SourceReference{Kind: v1.SourceKindGitRepository, Name: name},
			}}
			return n.Client.Create(ctx, set)
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return revisions
}

// T-110, I10: one tenant with 200 StageSets, each of which waits minutes for its artifact, at most doubles what a pass of
// another tenant's takes.
func TestSlowTenantDoesNotSlowAnother(t *testing.T) {
	s := setup(t)
	s.ownReconciler(t)
	slow, quick := s.tenant(t), s.tenant(t)
	revision := quick.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	quick.stageSet(t, "app", oneStage("app"))
	quick.waitReady(t, "app", "app", revision)
	before := median(quick.passesTake(t, "before"))

	url, server := s.startSlowServer(t)
	revisions := slow.slowStageSets(t, url, 200)
	// The slow tenant has all the downloads that it can get: half of sixteen.
	for range 8 {
		<-server.asked
	}
	busy := median(quick.passesTake(t, "busy"))
	if most := server.most.Load(); most != 8 {
		t.Errorf("the slow tenant had %d downloads at once, want half", most)
	}

	// And one that is new gets its turn too.
	third := s.tenant(t)
	revision = third.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	third.stageSet(t, "app", oneStage("app"))
	third.waitReady(t, "app", "app", revision)

	server.open()
	slow.waitAllReady(t, revisions)
	// Whatever else the machine does by and by is on both sides of what is measured.
	after := median(quick.passesTake(t, "after"))
	t.Logf("a pass takes %s before, %s beside, and %s after a slow tenant", before, busy, after)
	if busy > 2*max(before, after) {
		t.Errorf("a pass takes %s and %s, and %s while another tenant is slow", before, after, busy)
	}
}

// T-110: the same where the StageSets of the one tenant hold workers: every request that makes an object of theirs takes
// seconds.
func TestTenantThatHoldsWorkersDoesNotSlowAnother(t *testing.T) {
	s := setup(t)
	const workers = 20
	s.ownReconciler(t, fmt.Sprintf("--concurrent=%d", workers))
	slow, quick := s.tenant(t), s.tenant(t)
	revision := quick.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	quick.stageSet(t, "app", oneStage("app"))
	quick.waitReady(t, "app", "app", revision)
	before := median(quick.passesTake(t, "before"))

	held := newGate(t)
	slow.WaitFor(t, slow.configMap("kube-root-ca.crt")) // which somebody else makes, is not held
	slow.webhook(t, "configmaps", func(ctx context.Context, _ *admissionv1.AdmissionRequest) *metav1.Status {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		held.hold(ctx)
		return nil
	})
	revisions := slow.slowStageSets(t, "http://"+s.Artifacts.Host(), 200)
	for range 2 * workers { // some of them are the second of their StageSet
		<-held.asked
	}
	busy := median(quick.passesTake(t, "busy"))
	if most := held.most.Load(); most != workers/2 {
		t.Errorf("the slow tenant held %d workers at once, want half", most)
	}

	held.open()
	slow.waitAllReady(t, revisions)
	after := median(quick.passesTake(t, "after"))
	t.Logf("a pass takes %s before, %s beside, and %s after a tenant that holds workers", before, busy, after)
	if busy > 2*max(before, after) {
		t.Errorf("a pass takes %s and %s, and %s while another tenant holds workers", before, after, busy)
	}
}

// waitAllReady waits for StageSets that slowStageSets has made.
func (n *tenant) waitAllReady(t *testing.T, revisions []string) {
	t.Helper()
	for i, revision := range revisions {
		name := fmt.Sprintf("slow-%d", i)
		n.waitReady(t, name, name, revision)
	}
}

// median is the one in the middle.
func median(of []time.Duration) time.Duration {
	slices.Sort(of)
	return of[len(of)/2]
}

// I9: whoever serves an artifact slowly holds no worker, however few there are; and the pass that waits for one is made as
// soon as it has come.
func TestHangingDownloadsHoldNoWorker(t *testing.T) {
	s := setup(t)
	const workers = 2
	s.ownReconciler(t, fmt.Sprintf("--concurrent=%d", workers))
	url, server := s.startSlowServer(t)
	slow := []*tenant{s.tenant(t), s.tenant(t)}
	revisions := make([][]string, len(slow))
	for i := range slow {
		revisions[i] = slow[i].slowStageSets(t, url, 2*workers)
	}
	for range len(slow) * 2 * workers {
		<-server.asked
	}
	quick := s.tenant(t)
	revision := quick.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	quick.stageSet(t, "app", oneStage("app"))
	quick.waitReady(t, "app", "app", revision)
	quick.passesTake(t, "beside")

	server.open()
	for i := range slow {
		slow[i].waitAllReady(t, revisions[i])
	}
}

// passesTake is how long passes of the StageSet app take, each from when it is asked for until the status says so.
func (n *tenant) passesTake(t *testing.T, token string) []time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*cluster.Timeout)
	defer cancel()
	watcher, err := client.NewWithWatch(n.Config, client.Options{Scheme: n.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	itself := client.MatchingFields{"metadata.name": "app"}
	stream, err := watcher.Watch(ctx, &v1.StageSetList{}, client.InNamespace(n.namespace), itself)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Stop()
	var took []time.Duration
	for pass := range 15 {
		began, asked := time.Now(), fmt.Sprintf("%s-%d", token, pass)
		n.request(t, "app", asked)
		for handled := ""; handled != asked; {
			select {
			case event := <-stream.ResultChan():
				set, ok := event.Object.(*v1.StageSet)
				if !ok {
					t.Fatalf("the watch ended: %v", runtime.Object(event.Object))
				}
				handled = set.Status.LastHandledReconcileAt
			case <-ctx.Done():
				t.Fatalf("pass %s did not end", asked)
			}
		}
		took = append(took, time.Since(began))
	}
	return took
}
