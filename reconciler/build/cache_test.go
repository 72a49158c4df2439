package build

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

// countedFiles counts builds by the reads of its root, and may hold them.
type countedFiles struct {
	files          fs.FS
	reads          atomic.Int64
	opened, closed atomic.Int64
	hold           chan struct{}
}

func (c *countedFiles) Open(name string) (fs.File, error) { return c.files.Open(name) }

func (c *countedFiles) FS() fs.FS    { return c }
func (c *countedFiles) Close() error { c.closed.Add(1); return nil }

// open is an Open that gives the files, and counts.
func (c *countedFiles) open(context.Context) (Artifact, error) {
	c.opened.Add(1)
	return c, nil
}

func (c *countedFiles) ReadDir(name string) ([]fs.DirEntry, error) {
	if name == "." {
		c.reads.Add(1)
		if c.hold != nil {
			<-c.hold
		}
	}
	return fs.ReadDir(c.files, name)
}

func TestCacheBuildsOnce(t *testing.T) {
	files := &countedFiles{files: artifact(map[string]string{"a.yaml": configMap("a"), "sub/b.yaml": configMap("b")})}
	cache := NewCache(1 << 20)
	build := func(digest string, opts Options) []string {
		m, err := cache.Build(context.Background(), digest, files.open, opts)
		if err != nil {
			t.Fatal(err)
		}
		return origins(m)
	}
	for range 3 {
		if diff := cmp.Diff([]string{"ConfigMap a a.yaml:1", "ConfigMap b sub/b.yaml:1"}, build("sha256:1", Options{})); diff != "" {
			t.Errorf("objects (-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff([]string{"ConfigMap b sub/b.yaml:1"}, build("sha256:1", Options{Path: "sub"})); diff != "" {
		t.Errorf("objects of another path (-want +got):\n%s", diff)
	}
	build("sha256:2", Options{})
	if got := files.reads.Load(); got != 2 {
		t.Errorf("the root was read %d times, want once for each digest", got)
	}
	if opened, closed := files.opened.Load(), files.closed.Load(); opened != 3 || closed != 3 {
		t.Errorf("%d artifacts were opened, %d closed, want one for each build", opened, closed)
	}
}

func TestCacheSharesABuild(t *testing.T) {
	for name, text := range map[string]string{"sound": configMap("a"), "broken": "{{"} {
		t.Run(name, func(t *testing.T) {
			files := &countedFiles{files: artifact(map[string]string{"a.yaml": text}), hold: make(chan struct{})}
			cache := NewCache(1 << 20)
			cache.patience = time.Minute
			var group sync.WaitGroup
			for range 16 {
				group.Go(func() {
					if _, err := cache.Build(context.Background(), "sha256:1", files.open, Options{}); (err != nil) != (name == "broken") {
						t.Errorf("error %v", err)
					}
				})
			}
			files.hold <- struct{}{} // the one build waits here; all others have come or will find its outcome
			close(files.hold)
			group.Wait()
			if got := files.reads.Load(); name == "sound" && got != 1 {
				t.Errorf("%d builds, want 1", got)
			}
		})
	}
}

// I9: nobody waits long for a build that another caller is at, and an artifact that cannot be had yet is no build.
func TestCacheDoesNotWaitLongForOthers(t *testing.T) {
	files := &countedFiles{files: artifact(map[string]string{"a.yaml": configMap("a"), "b/b.yaml": configMap("b")}), hold: make(chan struct{})}
	cache := NewCache(1 << 20)
	cache.patience = time.Millisecond
	first := make(chan error)
	go func() {
		_, err := cache.Build(context.Background(), "sha256:1", files.open, Options{})
		first <- err
	}()
	for files.reads.Load() == 0 && t.Context().Err() == nil {
		runtime.Gosched()
	}
	_, err := cache.Build(t.Context(), "sha256:1", files.open, Options{})
	if failed := failure.From(err); failed.Kind != failure.Waiting || failed.RetryAfter != busyPause || !errors.Is(err, errShared) {
		t.Errorf("failure %s after %s: %v", failed.Kind, failed.RetryAfter, err)
	}
	absent := errors.New("not yet")
	notYet := func(context.Context) (Artifact, error) { return nil, absent }
	if _, err := cache.Build(t.Context(), "sha256:1", notYet, Options{}); !errors.Is(err, absent) {
		t.Errorf("got %v, want what opening it gave", err)
	}
	close(files.hold)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

func TestCacheOutlivesTheFirstCaller(t *testing.T) {
	files := &countedFiles{files: artifact(map[string]string{"a.yaml": configMap("a"), "b/b.yaml": configMap("b")}), hold: make(chan struct{})}
	cache := NewCache(1 << 20)
	cache.patience = time.Minute
	ctx, leave := context.WithCancel(context.Background())
	first, second := make(chan error), make(chan error)
	go func() {
		_, err := cache.Build(ctx, "sha256:1", files.open, Options{})
		first <- err
	}()
	files.hold <- struct{}{} // the first build has begun
	leave()
	go func() {
		_, err := cache.Build(context.Background(), "sha256:1", files.open, Options{})
		second <- err
	}()
	close(files.hold)
	if err := <-first; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("who left got %v", err)
	}
	if err := <-second; err != nil {
		t.Errorf("who stayed got %v", err)
	}
}

func TestCacheIsBounded(t *testing.T) {
	files := &countedFiles{files: artifact(map[string]string{"a.yaml": configMap("a")})}
	one, err := Build(context.Background(), files, Options{})
	if err != nil {
		t.Fatal(err)
	}
	cache := NewCache(2 * one.Size())
	before := files.reads.Load()
	for _, digest := range []string{"1", "2", "1", "3", "1", "2"} { // 3 pushes out 2, 2 pushes out 3
		if _, err := cache.Build(context.Background(), digest, files.open, Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := files.reads.Load() - before; got != 4 {
		t.Errorf("%d builds, want 4", got)
	}
	small := NewCache(1)
	for range 2 {
		if _, err := small.Build(context.Background(), "1", files.open, Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if small.total != 0 || small.recent.Len() != 0 {
		t.Errorf("the cache keeps %d bytes beyond its limit", small.total)
	}
}

// A build that was given up is not begun again before it has ended by itself.
func TestCacheLeavesOneBuildAlone(t *testing.T) {
	files := &countedFiles{files: artifact(map[string]string{"a.yaml": configMap("a")})}
	cache := NewCache(1 << 20)
	key, err := keyOf("sha256:1", Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, running, _ := cache.lookUp(key)
	ended := make(chan struct{})
	_, err = cache.build(t.Context(), key, running, func() (Manifests, error) {
		return Manifests{}, &leftAloneError{errTooSlow, ended}
	})
	for range 3 {
		if !errors.Is(err, errTooSlow) {
			t.Fatalf("error %v, want that it took too long", err)
		}
		_, err = cache.Build(t.Context(), "sha256:1", files.open, Options{})
	}
	if got := files.reads.Load(); got != 0 {
		t.Errorf("%d builds were begun", got)
	}
	close(ended)
	for err != nil && t.Context().Err() == nil {
		runtime.Gosched()
		_, err = cache.Build(t.Context(), "sha256:1", files.open, Options{})
	}
	if got := files.reads.Load(); got != 1 {
		t.Errorf("%d builds were begun once it had ended, want 1", got)
	}
}

// However many large builds are asked for, few run; small ones run beside them, and a large one gets its turn when another
// has really ended.
func TestCacheBoundsLargeBuilds(t *testing.T) {
	large := map[string]string{}
	for i := range smallBuild/(4<<20) + 1 {
		large[fmt.Sprintf("%d.json", i)] = fmt.Sprintf(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a%d"}, "data": {"x": %q}}`,
			i, strings.Repeat("x", 4<<20-100))
	}
	kustomized := maps.Clone(large)
	kustomized["kustomization.yaml"] = "resources: [0.json]\nconfigMapGenerator: [{name: g, files: [1.json, 2.json]}]\n"
	small := &countedFiles{files: artifact(map[string]string{"a.yaml": configMap("a")})}
	for name, files := range map[string]map[string]string{"plain": large, "kustomize": kustomized} {
		t.Run(name, func(t *testing.T) {
			cache, files := NewCache(1<<20), &countedFiles{files: artifact(files)}
			ended := make(chan struct{})
			running := slot{of: cache.large}
			if err := running.need(smallBuild + 1); err != nil {
				t.Fatal(err)
			}
			given := slot{of: cache.large}
			if err := given.need(smallBuild + 1); err != nil {
				t.Fatal(err)
			}
			given.leave(&leftAloneError{errTooSlow, ended})
			_, err := cache.Build(t.Context(), "1", files.open, Options{})
			failed := failure.From(err)
			if failed.Kind != failure.Waiting || failed.Reason != v1.ReasonProgressing || !errors.Is(err, errBusy) {
				t.Errorf("failure %s %s: %v", failed.Kind, failed.Reason, err)
			}
			if _, err := cache.Build(t.Context(), "2", small.open, Options{}); err != nil {
				t.Errorf("a small build: %v", err)
			}
			running.leave(nil)
			if _, err := cache.Build(t.Context(), "1", files.open, Options{}); err != nil {
				t.Errorf("after another has ended: %v", err)
			}
			close(ended)
			for !cache.large.take("") { // as soon as what was left alone has ended
				runtime.Gosched()
			}
		})
	}
}
