package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/e2e/cluster"
)

// slowServer takes requests for artifacts and does not answer until the end of the test.
type slowServer struct {
	*httptest.Server
	asked chan struct{}
}

func startSlowServer(t *testing.T) *slowServer {
	t.Helper()
	s, ended := &slowServer{asked: make(chan struct{}, 1000)}, make(chan struct{})
	s.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		s.asked <- struct{}{}
		select {
		case <-ended:
		case <-request.Context().Done():
		}
	}))
	t.Cleanup(func() {
		close(ended)
		s.Close()
	})
	return s
}

// T-110, I10: one tenant with 200 StageSets, each of which holds its worker for minutes, at most doubles what a pass of
// another tenant's takes.
func TestSlowTenantDoesNotSlowAnother(t *testing.T) {
	s := setup(t)
	s.ownReconciler(t)
	slow, quick := s.tenant(t), s.tenant(t)
	revision := quick.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	quick.stageSet(t, "app", oneStage("app"))
	quick.waitReady(t, "app", "app", revision)
	idle := quick.passTakes(t, "idle")

	server := startSlowServer(t)
	const many = 200
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(8)
	// Sources of their own: nobody waits for the download of somebody else.
	for i := range many {
		artifact := slow.Artifacts.Put("gitrepository", slow.namespace, fmt.Sprintf("app-%d", i), []byte("never sent"))
		artifact.URL = server.URL + "/" + artifact.Path
		publish(t, slow.Cluster, slow.namespace, fmt.Sprintf("app-%d", i), artifact)
		group.Go(func() error {
			set := &v1.StageSet{}
			set.Namespace, set.Name = slow.namespace, fmt.Sprintf("app-%d", i)
			set.Spec.ServiceAccountName = deployer
			set.Spec.Stages = []v1.Stage{{
				Name: "app", SourceRef: v1.SourceReference{Kind: v1.SourceKindGitRepository, Name: set.Name},
			}}
			return slow.Client.Create(ctx, set)
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	// The slow tenant has all the workers that it can get: half of twenty.
	for range 10 {
		<-server.asked
	}
	busy := quick.passTakes(t, "busy")
	t.Logf("a pass takes %s, and %s while another tenant is slow", idle, busy)
	if busy > 2*idle {
		t.Errorf("a pass takes %s, and %s while another tenant is slow", idle, busy)
	}
	select {
	case <-server.asked:
		t.Error("the slow tenant had more workers than half")
	default:
	}

	// And one that is new gets its turn too.
	third := s.tenant(t)
	revision = third.source(t, "app", map[string]string{"a.yaml": configMap("a", "1")})
	third.stageSet(t, "app", oneStage("app"))
	third.waitReady(t, "app", "app", revision)
}

// passTakes is how long a pass of the StageSet app takes from when it is asked for until the status says so: the median of
// some.
func (n *tenant) passTakes(t *testing.T, token string) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), cluster.Timeout)
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
	slices.Sort(took)
	return took[len(took)/2]
}
