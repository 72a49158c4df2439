package pipeline

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/build"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/source"
	"github.com/stageset/stageset/reconciler/tenant"
)

// patience is how long the passes of a test wait for an artifact: as long as it takes.
const patience = time.Minute

// stages are stages that all have their artifact, of the content's digest, on a server.
func stages(t *testing.T, count int, content []byte, status int) (p *Pipeline, pinned Pinned, requests *atomic.Int64) {
	t.Helper()
	requests = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(status)
		_, _ = w.Write(content)
	}))
	t.Cleanup(server.Close)
	fetcher, err := source.NewFetcher(source.FetcherOptions{
		Dir: t.TempDir(), Transport: http.DefaultTransport, Patience: patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fetcher.Close() })
	for i := range count {
		pinned.Stages = append(pinned.Stages, PinnedStage{
			Stage: v1.Stage{
				Name: fmt.Sprintf("stage-%d", i), Path: "./",
				CommonMetadata: &v1.CommonMetadata{Labels: map[string]string{"stage": fmt.Sprint(i)}},
			},
			Target: &tenant.Client{},
			Pin: source.Pin{
				UID: types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i)), URL: server.URL,
				Digest: fmt.Sprintf("sha256:%x", sha256.Sum256(content)), Revision: "main",
			},
		})
	}
	return &Pipeline{Fetcher: fetcher, Builds: build.NewCache(1)}, pinned, requests
}

// packed is an archive of files.
func packed(t *testing.T, content map[string]string) []byte {
	t.Helper()
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	files := tar.NewWriter(zipped)
	for name, text := range content {
		if err := files.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := files.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(files.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

func plenty(int64) bool { return true }

// A pass asks for room stage by stage, and does not wait for it.
func TestAPassThatFindsNoRoomIsMadeAgain(t *testing.T) {
	p, pinned, _ := stages(t, 3, packed(t, map[string]string{
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
	}), http.StatusOK)
	asked := 0
	_, err := p.build(t.Context(), &v1.StageSet{}, pinned, func(bytes int64) bool {
		if bytes == 0 {
			t.Error("nothing was asked for")
		}
		asked++
		return asked < 2
	})
	failed := failure.From(err)
	if failed.Kind != failure.Waiting || failed.Reason != v1.ReasonProgressing || failed.RetryAfter != roomPause || asked != 2 {
		t.Errorf("%d stages asked: %+v", asked, failed)
	}
}

func TestAServerThatIsDownIsAskedOnceInAPass(t *testing.T) {
	p, pinned, requests := stages(t, 3, nil, http.StatusServiceUnavailable)
	_, err := p.build(t.Context(), &v1.StageSet{}, pinned, plenty)
	if failed := failure.From(err); failed.Reason != v1.ReasonArtifactFailed || failed.Stage != "stage-0" {
		t.Errorf("got %s in stage %q: %v", failed.Reason, failed.Stage, err)
	}
	if got := requests.Load(); got != 1 {
		t.Errorf("%d requests, want 1", got)
	}
}

// I9: what has to be waited for does not keep what is wrong with earlier stages from being told, which the next pass would
// find out again; by itself it only postpones the pass.
func TestSlowArtifactAndBrokenStage(t *testing.T) {
	p, pinned, _ := stages(t, 2, packed(t, map[string]string{"a.yaml": "{{"}), http.StatusOK)
	ended := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-ended:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() {
		close(ended)
		hanging.Close()
	})
	woken := make(chan types.NamespacedName, 1)
	fetcher, err := source.NewFetcher(source.FetcherOptions{
		Dir: t.TempDir(), Transport: http.DefaultTransport, Patience: time.Millisecond,
		Wake: func(_ context.Context, stageSet types.NamespacedName) { woken <- stageSet },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fetcher.Close() })
	p.Fetcher = fetcher
	pinned.Stages[1].Pin.URL = hanging.URL
	for _, err = p.build(t.Context(), &v1.StageSet{}, pinned, plenty); isPostponed(err); {
		<-woken
		_, err = p.build(t.Context(), &v1.StageSet{}, pinned, plenty)
	}
	if failed := failure.From(err); failed.Reason != v1.ReasonBuildFailed || failed.Kind != failure.Stalled || failed.Stage != "stage-0" {
		t.Errorf("got %s %s in stage %q: %v", failed.Kind, failed.Reason, failed.Stage, err)
	}
	pinned.Stages = pinned.Stages[1:]
	if _, err := p.build(t.Context(), &v1.StageSet{}, pinned, plenty); !isPostponed(err) {
		t.Errorf("got %v, want that it is waited for", err)
	}
}

func isPostponed(err error) bool {
	failed := failure.From(err)
	return failed.Kind == failure.Waiting && failed.Reason == v1.ReasonProgressing
}

// Every stage is within its own limit, and 64 of them could take 4 GiB.
func TestWhatAllStagesRenderIsBounded(t *testing.T) {
	filler := strings.Repeat("x", 3<<20)
	files := map[string]string{}
	for i := range 11 {
		files[fmt.Sprintf("c%d.yaml", i)] = fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d}\ndata: {x: %s}\n", i, filler)
	}
	p, pinned, requests := stages(t, 4, packed(t, files), http.StatusOK)
	_, err := p.build(t.Context(), &v1.StageSet{}, pinned, plenty)
	if failed := failure.From(err); failed.Reason != v1.ReasonBuildFailed || failed.Stage != "stage-1" {
		t.Errorf("got %s in stage %q: %v", failed.Reason, failed.Stage, err)
	}
	if got := requests.Load(); got != 2 {
		t.Errorf("%d artifacts were fetched, want 2", got)
	}
}

// T-102: however many StageSets ask for one artifact at once, it is fetched, and so unpacked, once; what was rendered
// before does not even need it.
func TestOneArtifactIsFetchedOnce(t *testing.T) {
	p, pinned, requests := stages(t, 1, packed(t, map[string]string{
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
	}), http.StatusOK)
	p.Builds = build.NewCache(1 << 20)
	var group sync.WaitGroup
	for i := range 50 {
		stage := pinned.Stages[0]
		stage.Variables = build.Variables{"number": {Value: fmt.Sprint(i % 10)}}
		group.Go(func() {
			if _, err := p.render(t.Context(), &v1.StageSet{}, &stage); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if got := requests.Load(); got != 1 {
		t.Errorf("%d requests for 50 stages, want 1", got)
	}

	_ = p.Fetcher.Close() // whatever asks it fails
	stage := pinned.Stages[0]
	stage.Variables = build.Variables{"number": {Value: "7"}}
	if _, err := p.render(t.Context(), &v1.StageSet{}, &stage); err != nil {
		t.Errorf("what was rendered before: %v", err)
	}
	// The same digest in the status of another source says nothing about who may read the artifact.
	stage.Pin.UID = "00000000-0000-0000-0000-000000000099"
	if _, err := p.render(t.Context(), &v1.StageSet{}, &stage); err == nil {
		t.Error("another source got the artifact without fetching it")
	}
}

// T-88: what a directory of manifests has besides manifests is told once, not in each pass.
func TestIgnoredFilesAreToldOnce(t *testing.T) {
	p, pinned, _ := stages(t, 1, packed(t, map[string]string{
		"CM.YAML": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", "b/README.md": "no manifest", "a.yaml.tmpl": "{{",
	}), http.StatusOK)
	p.Builds = build.NewCache(1 << 20)
	var lines []string
	ctx := logr.NewContext(t.Context(), funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
	for range 2 {
		manifests, err := p.render(ctx, &v1.StageSet{}, &pinned.Stages[0])
		if err != nil || len(manifests.Objects()) != 1 {
			t.Fatalf("%d objects, error %v", len(manifests.Objects()), err)
		}
	}
	if len(lines) != 1 || !strings.Contains(lines[0], `"files"=["a.yaml.tmpl" "b/README.md"]`) {
		t.Errorf("log %q", lines)
	}
}
