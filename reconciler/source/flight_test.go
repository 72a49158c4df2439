package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

// heldServer answers each request for an artifact once it may, and tells of each.
type heldServer struct {
	*artifactServer
	asked  chan string // paths
	answer chan struct{}
}

func hold(t *testing.T, status int, raw []byte) *heldServer {
	held := &heldServer{asked: make(chan string, 1000), answer: make(chan struct{})}
	held.artifactServer = serve(t, func(w http.ResponseWriter, r *http.Request) {
		held.asked <- r.URL.Path
		select {
		case <-held.answer:
			w.WriteHeader(status)
			_, _ = w.Write(raw)
		case <-r.Context().Done():
		}
	})
	return held
}

// impatient is a Fetcher that waits for no download, and what it wakes.
func impatient(t *testing.T) (*Fetcher, <-chan types.NamespacedName) {
	woken := make(chan types.NamespacedName)
	return fetcher(t, func(o *FetcherOptions) {
		o.Patience = time.Millisecond
		o.Wake = func(ctx context.Context, stageSet types.NamespacedName) {
			select {
			case woken <- stageSet:
			case <-ctx.Done():
			}
		}
	}), woken
}

// isUnderWay fails the test unless a StageSet is told to wait.
func isUnderWay(t *testing.T, f *Fetcher, stageSet types.NamespacedName, pin Pin) {
	t.Helper()
	_, err := f.Fetch(t.Context(), stageSet, pin)
	failed := failure.From(err)
	if failed.Reason != v1.ReasonProgressing || failed.Kind != failure.Waiting || failed.RetryAfter <= 0 {
		t.Fatalf("got %s %s after %s: %v", failed.Kind, failed.Reason, failed.RetryAfter, err)
	}
}

func named(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// I9: nobody waits for a download that takes long. Who has asked for it is woken once it is over, and finds it.
func TestSlowDownloadIsNotWaitedFor(t *testing.T) {
	raw := archive(t, file("cm.yaml", "a: 1"))
	server := hold(t, http.StatusOK, raw)
	f, woken := impatient(t)
	pin := pinOf(server.URL, raw)
	waiting := map[types.NamespacedName]bool{named("team-a", "one"): true, named("team-b", "two"): true}
	for range 2 {
		for stageSet := range waiting {
			isUnderWay(t, f, stageSet, pin)
		}
	}
	close(server.answer)
	for len(waiting) > 0 {
		stageSet := <-woken
		if !waiting[stageSet] {
			t.Fatalf("%s is woken", stageSet)
		}
		delete(waiting, stageSet)
		artifact, err := f.Fetch(t.Context(), stageSet, pin)
		if err != nil {
			t.Fatal(err)
		}
		artifact.Close()
	}
	if got := server.requests.Load(); got != 1 {
		t.Errorf("%d downloads, want 1", got)
	}
}

// What a download failed of is told to each who has asked for it, once: the next time it is tried again.
func TestSlowDownloadThatFails(t *testing.T) {
	server := hold(t, http.StatusServiceUnavailable, nil)
	f, woken := impatient(t)
	pin := pinOf(server.URL, nil)
	isUnderWay(t, f, named("team-a", "one"), pin)
	isUnderWay(t, f, named("team-b", "two"), pin)
	server.answer <- struct{}{}
	for range 2 {
		stageSet := <-woken
		_, err := f.Fetch(t.Context(), stageSet, pin)
		if failed := failure.From(err); failed.Reason != v1.ReasonArtifactFailed || failed.Kind != failure.Transient {
			t.Errorf("%s is told %s %s: %v", stageSet, failed.Kind, failed.Reason, err)
		}
		isUnderWay(t, f, stageSet, pin)
	}
	<-server.asked
	<-server.asked // the second download, of both
	server.answer <- struct{}{}
	<-woken
	<-woken

	// Who has asked for something else since, or is gone, is told of that and nothing else.
	other := pin
	other.UID = "uid-2"
	isUnderWay(t, f, named("team-a", "one"), other)
	f.Forget(named("team-b", "two"))
	isUnderWay(t, f, named("team-b", "two"), pin)
	isUnderWay(t, f, named("team-a", "one"), pin)
	f.Forget(named("team-a", "one"))
	f.Forget(named("team-b", "two"))
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if len(f.failures) > 0 {
		t.Errorf("%d failures are kept for nobody", len(f.failures))
	}
}

// I10: downloads are bounded, and whoever has many of them that hang leaves room for others; also for one that the other
// has asked for too.
func TestDownloadsAreFairBetweenNamespaces(t *testing.T) {
	raw := archive(t, file("cm.yaml", "a: 1"))
	hanging, quick := hold(t, http.StatusOK, raw), serveBytes(t, raw)
	f, _ := impatient(t)
	many := make([]Pin, 100)
	for i := range many {
		many[i] = pinOf(hanging.URL, raw)
		many[i].UID = types.UID(fmt.Sprintf("uid-%d", i))
		isUnderWay(t, f, named("team-a", fmt.Sprint(i)), many[i])
	}
	shared := pinOf(quick.URL, raw)
	shared.UID = "shared"
	isUnderWay(t, f, named("team-a", "last"), shared)
	for range maxDownloads / 2 {
		<-hanging.asked
	}
	f.patience = time.Minute
	artifact, err := f.Fetch(t.Context(), named("team-b", "one"), shared)
	if err != nil {
		t.Fatal(err)
	}
	artifact.Close()
	if got := hanging.requests.Load(); got != maxDownloads/2 {
		t.Errorf("%d downloads hang, want %d", got, maxDownloads/2)
	}
}

// What a StageSet does not wait for any more when its turn comes is not downloaded.
func TestDownloadThatNobodyWaitsForIsDropped(t *testing.T) {
	raw := archive(t, file("cm.yaml", "a: 1"))
	server := hold(t, http.StatusOK, raw)
	f, woken := impatient(t)
	for i := range maxDownloads / 2 {
		busy := pinOf(server.URL, raw)
		busy.UID = types.UID(fmt.Sprintf("busy-%d", i))
		isUnderWay(t, f, named("team-a", fmt.Sprint(i)), busy)
	}
	for range maxDownloads / 2 {
		<-server.asked
	}
	var last Pin
	for _, path := range []string{"/old", "/older", "/new"} {
		last = pinOf(server.URL+path, raw)
		last.UID = types.UID("uid-" + path[1:])
		isUnderWay(t, f, named("team-a", "mind-changed"), last)
	}
	close(server.answer)
	for stageSet := range woken {
		if stageSet.Name == "mind-changed" {
			break
		}
	}
	if diff := cmp.Diff("/new/app.tar.gz", <-server.asked); diff != "" {
		t.Errorf("downloaded (-want +got):\n%s", diff)
	}
	if got := server.requests.Load(); got != maxDownloads/2+1 {
		t.Errorf("%d downloads, want %d", got, maxDownloads/2+1)
	}
}

// A pass that ends early leaves the download to the others.
func TestFetchEndsWithItsPass(t *testing.T) {
	server := hold(t, http.StatusOK, nil)
	f := fetcher(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := f.Fetch(ctx, shop, pinOf(server.URL, nil))
		ended <- err
	}()
	<-server.asked
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the fetch ended with %v", err)
	}
}
