package source

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/dial"
	"github.com/stageset/stageset/reconciler/failure"
)

// artifactServer serves archives by path and counts requests.
type artifactServer struct {
	*httptest.Server
	requests atomic.Int64
}

func serve(t testing.TB, handler http.HandlerFunc) *artifactServer {
	t.Helper()
	server := &artifactServer{}
	server.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server.requests.Add(1)
		handler(w, r)
	}))
	t.Cleanup(server.Close)
	return server
}

func serveBytes(t testing.TB, raw []byte) *artifactServer {
	return serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(raw) })
}

// fetcher is a Fetcher that may reach loopback; change adapts its options.
func fetcher(t testing.TB, change func(*FetcherOptions)) *Fetcher {
	t.Helper()
	hosts, err := ParseHosts([]string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	transport := dial.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}).Transport()
	options := FetcherOptions{
		Dir: filepath.Join(t.TempDir(), "cache"), Transport: transport, Hosts: hosts, Patience: time.Minute,
	}
	if change != nil {
		change(&options)
	}
	f, err := NewFetcher(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func sumOf(algorithm string, raw []byte) string {
	digest := algorithms[algorithm]()
	digest.Write(raw)
	return algorithm + ":" + hex.EncodeToString(digest.Sum(nil))
}

func pinOf(url string, raw []byte) Pin {
	return Pin{Kind: v1.SourceKindGitRepository, Namespace: "team-a", Name: "app", UID: "uid-1", URL: url + "/app.tar.gz",
		Digest: sumOf("sha256", raw), Revision: "main", Size: int64(len(raw))}
}

// shop is a StageSet.
var shop = types.NamespacedName{Namespace: "team-a", Name: "shop"}

// fetched is the content of a file of the artifact of pin.
func fetched(t testing.TB, f *Fetcher, pin Pin, name string) string {
	t.Helper()
	artifact, err := f.Fetch(context.Background(), shop, pin)
	if err != nil {
		t.Fatal(err)
	}
	defer artifact.Close()
	content, err := fs.ReadFile(artifact.FS(), name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// T-80: every algorithm is verified, in either case of hex.
func TestFetchVerifiesEveryAlgorithm(t *testing.T) {
	raw := archive(t, file("app/cm.yaml", "a: 1"))
	server := serveBytes(t, raw)
	for algorithm := range algorithms {
		t.Run(algorithm, func(t *testing.T) {
			f := fetcher(t, nil)
			pin := pinOf(server.URL, raw)
			pin.Digest = strings.ToUpper(sumOf(algorithm, raw))
			if diff := cmp.Diff("a: 1", fetched(t, f, pin, "app/cm.yaml")); diff != "" {
				t.Errorf("content (-want +got):\n%s", diff)
			}
			pin.UID = "uid-2" // not in the cache
			pin.Digest = sumOf(algorithm, []byte("something else"))
			if _, err := f.Fetch(context.Background(), shop, pin); err == nil {
				t.Error("a wrong digest was accepted")
			}
		})
	}
}

func TestFetchFromCache(t *testing.T) {
	raw := archive(t, file("cm.yaml", "a: 1"))
	server := serveBytes(t, raw)
	f := fetcher(t, nil)
	pin := pinOf(server.URL, raw)
	other := pin
	other.UID = "uid-2"
	for _, p := range []Pin{pin, pin, other, pin} {
		fetched(t, f, p, "cm.yaml")
	}
	if got := server.requests.Load(); got != 2 {
		t.Errorf("%d downloads, want one for each source", got)
	}
}

// T-102: many at once download and unpack once.
func TestFetchManyAtOnce(t *testing.T) {
	raw := archive(t, file("cm.yaml", "a: 1"))
	open := make(chan struct{})
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		<-open
		_, _ = w.Write(raw)
	})
	f := fetcher(t, nil)
	pin := pinOf(server.URL, raw)
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			if got := fetched(t, f, pin, "cm.yaml"); got != "a: 1" {
				t.Errorf("content %q", got)
			}
		})
	}
	close(open)
	group.Wait()
	if got := server.requests.Load(); got != 1 {
		t.Errorf("%d downloads, want 1", got)
	}
}

func TestFetchWaitersLeaveAlone(t *testing.T) {
	raw := archive(t, file("cm.yaml", "a: 1"))
	started, open := make(chan struct{}), make(chan struct{})
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		close(started)
		<-open
		_, _ = w.Write(raw)
	})
	f := fetcher(t, nil)
	pin := pinOf(server.URL, raw)

	first, leave := context.WithCancel(context.Background())
	left := make(chan error)
	go func() {
		_, err := f.Fetch(first, shop, pin)
		left <- err
	}()
	<-started
	stayed := make(chan string)
	go func() { stayed <- fetched(t, f, pin, "cm.yaml") }()
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("who left got %v", err)
	}
	close(open)
	if got := <-stayed; got != "a: 1" {
		t.Errorf("who stayed got %q", got)
	}
	if got := server.requests.Load(); got != 1 {
		t.Errorf("%d downloads, want 1", got)
	}
}

func TestFetchFails(t *testing.T) {
	good := archive(t, file("cm.yaml", "a: 1"))
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	body := func(raw []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(raw) }
	}
	bad := func(raw []byte) func(*Pin) {
		return func(pin *Pin) { pin.Digest, pin.Size = sumOf("sha256", raw), int64(len(raw)) }
	}
	link := archive(t, archiveEntry{Header: link("app/l.yaml")})
	cases := map[string]struct {
		handler http.HandlerFunc
		pin     func(*Pin)
		options func(*FetcherOptions)
		kind    failure.Kind
		want    string
	}{
		"not found":    {handler: status(404), kind: failure.Transient, want: "the server answers 404 Not Found"},
		"server error": {handler: status(503), kind: failure.Transient, want: "the server answers 503 Service Unavailable"},
		"cut off": {
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "1000")
				_, _ = w.Write([]byte("short"))
			},
			pin: func(pin *Pin) { pin.Size = 0 }, kind: failure.Transient, want: "unexpected EOF"},
		"too slow": {
			handler: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			options: func(o *FetcherOptions) { o.Timeout = 50 * time.Millisecond }, kind: failure.Transient, want: "it takes longer than 50ms"},
		"wrong digest":      {handler: body(good), pin: func(p *Pin) { p.Digest = sum }, kind: failure.Stalled, want: "its digest is not " + sum + ", which the source says"},
		"empty digest":      {handler: body(good), pin: func(p *Pin) { p.Digest = "" }, kind: failure.Stalled, want: "the artifact has no digest"},
		"shorter than said": {handler: body(good[:50]), kind: failure.Stalled, want: fmt.Sprintf("it does not have the %d bytes that the source says", len(good))},
		"longer than said":  {handler: body(append(good[:len(good):len(good)], 'x')), kind: failure.Stalled, want: fmt.Sprintf("it does not have the %d bytes that the source says", len(good))},
		"announces too much": {
			handler: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "67108865") },
			kind:    failure.Stalled, want: "it has 67108865 bytes; at most 67108864 are accepted"},
		"sends too much": {
			handler: func(w http.ResponseWriter, _ *http.Request) {
				for chunk := make([]byte, 1<<20); ; {
					if _, err := w.Write(chunk); err != nil {
						return
					}
				}
			},
			pin: func(p *Pin) { p.Size = 0 }, kind: failure.Stalled, want: "it has more than 67108864 bytes"},
		"bad archive": {handler: body(link), pin: bad(link), kind: failure.Stalled, want: `entry "app/l.yaml" is a symbolic link`},
		"redirect to another host": {
			handler: http.RedirectHandler("http://metadata.internal/x", http.StatusFound).ServeHTTP,
			kind:    failure.Stalled, want: `it redirects to a URL that is refused: its host "metadata.internal" is none of --artifact-hosts (127.0.0.1)`},
		"redirect to the metadata of a cloud": {
			handler: http.RedirectHandler("http://169.254.169.254/latest", http.StatusFound).ServeHTTP,
			kind:    failure.Stalled, want: `it redirects to a URL that is refused: its host "169.254.169.254" is none of --artifact-hosts (127.0.0.1)`},
		"endless redirects": {handler: http.RedirectHandler("/again", http.StatusFound).ServeHTTP, kind: failure.Stalled, want: "more than 3 redirects"},
		"refused address": {
			handler: body(good), options: func(o *FetcherOptions) { o.Transport = dial.New(nil).Transport() },
			kind: failure.Stalled, want: "address 127.0.0.1 is a loopback address, which the reconciler does not connect to unless --dial-allow admits it"},
		"uid that leads out": {handler: body(good), pin: func(p *Pin) { p.UID = "../x" }, kind: failure.Stalled, want: `the source's uid "../x" is not one`},
		"no server": {handler: body(good), pin: func(p *Pin) { p.URL = "http://127.0.0.1:1/x?signature=SECRET" }, kind: failure.Transient,
			want: "the artifact of GitRepository team-a/app at http://127.0.0.1:1/x cannot be used: dial tcp 127.0.0.1:1: connect: connection refused"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			server := serve(t, c.handler)
			f := fetcher(t, c.options)
			pin := pinOf(server.URL, good)
			if c.pin != nil {
				c.pin(&pin)
			}
			_, err := f.Fetch(context.Background(), shop, pin)
			var failed *failure.Error
			if !errors.As(err, &failed) {
				t.Fatalf("error %v is no failure.Error", err)
			}
			if failed.Reason != v1.ReasonArtifactFailed || failed.Kind != c.kind || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s %s: %s\nwant %s ArtifactFailed: …%s", failed.Kind, failed.Reason, err, c.kind, c.want)
			}
			if strings.Contains(err.Error(), "SECRET") {
				t.Errorf("error %q holds a signature", err)
			}
			if left := onDisk(t, f); len(left) != 0 {
				t.Errorf("the cache holds %v", left)
			}
		})
	}
}

// onDisk are the artifacts and work directories of the cache.
func onDisk(t testing.TB, f *Fetcher) []string {
	t.Helper()
	works, err := fs.Glob(f.store.root.FS(), workPrefix+"*")
	if err != nil {
		t.Fatal(err)
	}
	artifacts, err := fs.Glob(f.store.root.FS(), "*/*"+"-"+"*")
	if err != nil {
		t.Fatal(err)
	}
	return append(works, artifacts...)
}

// expectOnDisk compares what is on disk once the last download is over: it gives up its use of the artifact, the last of that
// name, after who waits for it was told.
func expectOnDisk(t testing.TB, f *Fetcher, last string, want ...string) {
	t.Helper()
	unused := func(context.Context) (bool, error) {
		f.store.mutex.Lock()
		defer f.store.mutex.Unlock()
		return f.store.entries[last].users == 0, nil
	}
	if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, unused); err != nil {
		t.Fatalf("%s stays in use", last)
	}
	diff := ""
	removed := func(context.Context) (bool, error) {
		diff = cmp.Diff(want, onDisk(t, f))
		return diff == "", nil
	}
	if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, removed); err != nil {
		t.Errorf("on disk after %s (-want +got):\n%s", last, diff)
	}
}

func TestFetchFollowsRedirectToAllowedHost(t *testing.T) {
	raw := archive(t, file("cm.yaml", "a: 1"))
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/app.tar.gz" {
			http.Redirect(w, r, "/moved.tar.gz", http.StatusFound)
			return
		}
		_, _ = w.Write(raw)
	})
	if got := fetched(t, fetcher(t, nil), pinOf(server.URL, raw), "cm.yaml"); got != "a: 1" {
		t.Errorf("content %q", got)
	}
}

func TestFetchEvicts(t *testing.T) {
	f := fetcher(t, func(o *FetcherOptions) { o.CacheSize = 2 * block }) // two artifacts of one file
	raw := archive(t, file("cm.yaml", "a: 1"))
	server := serveBytes(t, raw)
	pin := func(uid types.UID) Pin {
		pin := pinOf(server.URL, raw)
		pin.UID = uid
		return pin
	}
	held, err := f.Fetch(context.Background(), shop, pin("held"))
	if err != nil {
		t.Fatal(err)
	}
	name := func(uid types.UID) string { return string(uid) + "/" + strings.Replace(pin("x").Digest, ":", "-", 1) }
	for _, uid := range []types.UID{"a", "b", "c"} {
		fetched(t, f, pin(uid), "cm.yaml")
		expectOnDisk(t, f, name(uid), name(uid), name("held"))
	}
	if content, err := fs.ReadFile(held.FS(), "cm.yaml"); err != nil || string(content) != "a: 1" {
		t.Errorf("the artifact in use reads %q, %v", content, err)
	}
	held.Close()
	held.Close()
	fetched(t, f, pin("d"), "cm.yaml")
	expectOnDisk(t, f, name("d"), name("d"), name("held"))
}

// An artifact that alone is larger than the cache is still of use to all who wait for it, until another one is.
func TestFetchLargerThanCache(t *testing.T) {
	f := fetcher(t, func(o *FetcherOptions) { o.CacheSize = 1 })
	raw := archive(t, file("cm.yaml", "a: 1"))
	server := serveBytes(t, raw)
	for _, uid := range []types.UID{"a", "a", "b"} {
		pin := pinOf(server.URL, raw)
		pin.UID = uid
		if got := fetched(t, f, pin, "cm.yaml"); got != "a: 1" {
			t.Errorf("content %q", got)
		}
		name := string(uid) + "/" + strings.Replace(pin.Digest, ":", "-", 1)
		expectOnDisk(t, f, name, name)
	}
	if got := server.requests.Load(); got != 2 {
		t.Errorf("%d downloads, want one of each", got)
	}
}

func TestFetchAfterRestart(t *testing.T) {
	raw := archive(t, file("app/cm.yaml", "a: 1"), file("app/b.yaml", "b: 2"))
	cases := map[string]struct {
		damage    func(t *testing.T, artifact string) error
		downloads int64
	}{
		"intact":      {func(*testing.T, string) error { return nil }, 1},
		"no seal":     {func(_ *testing.T, dir string) error { return os.Remove(filepath.Join(dir, sealName)) }, 2},
		"broken seal": {func(_ *testing.T, dir string) error { return os.WriteFile(filepath.Join(dir, sealName), nil, 0o600) }, 2},
		"emptied file": {func(_ *testing.T, dir string) error {
			return os.Truncate(filepath.Join(dir, treeName, "app/cm.yaml"), 0)
		}, 2},
		"lost file": {func(_ *testing.T, dir string) error { return os.Remove(filepath.Join(dir, treeName, "app/b.yaml")) }, 2},
		"added file": {func(_ *testing.T, dir string) error {
			return os.WriteFile(filepath.Join(dir, treeName, "c.yaml"), nil, 0o600)
		}, 2},
		"link": {func(_ *testing.T, dir string) error {
			return os.Symlink("/etc/hostname", filepath.Join(dir, treeName, "l"))
		}, 2},
		"lost tree": {func(_ *testing.T, dir string) error { return os.RemoveAll(filepath.Join(dir, treeName)) }, 2},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			here := func(o *FetcherOptions) { o.Dir = dir }
			server := serveBytes(t, raw)
			pin := pinOf(server.URL, raw)
			before := fetcher(t, here)
			fetched(t, before, pin, "app/cm.yaml")
			before.Close()
			if err := os.MkdirAll(filepath.Join(dir, workPrefix+"left", treeName, "x"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Join(dir, "lost+found"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := c.damage(t, filepath.Join(dir, "uid-1", strings.Replace(pin.Digest, ":", "-", 1))); err != nil {
				t.Fatal(err)
			}
			after := fetcher(t, here)
			if got := fetched(t, after, pin, "app/cm.yaml"); got != "a: 1" {
				t.Errorf("content %q", got)
			}
			if got := server.requests.Load(); got != c.downloads {
				t.Errorf("%d downloads, want %d", got, c.downloads)
			}
			if _, err := os.Stat(filepath.Join(dir, workPrefix+"left")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the work directory is still there: %v", err)
			}
			if _, err := os.Stat(filepath.Join(dir, "lost+found")); err != nil {
				t.Errorf("a directory that is not the cache's is gone: %v", err)
			}
		})
	}
}

func TestCloseEndsFetches(t *testing.T) {
	started := make(chan struct{})
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done()
	})
	f := fetcher(t, nil)
	ended := make(chan error)
	go func() {
		_, err := f.Fetch(context.Background(), shop, pinOf(server.URL, nil))
		ended <- err
	}()
	<-started
	f.Close()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the fetch ended with %v", err)
	}
}

// What is asked for twice is downloaded once; what cannot be used is counted as such.
func TestArtifactsAreMeasured(t *testing.T) {
	measured, err := NewMetrics(prometheus.NewPedanticRegistry())
	if err != nil {
		t.Fatal(err)
	}
	raw := archive(t, file("cm.yaml", "a: 1"))
	server := serveBytes(t, raw)
	f := fetcher(t, func(o *FetcherOptions) { o.Metrics = measured })
	pin := pinOf(server.URL, raw)
	fetched(t, f, pin, "cm.yaml")
	fetched(t, f, pin, "cm.yaml")
	other := pin
	other.UID, other.Digest = "uid-2", sumOf("sha256", []byte("something else"))
	if _, err := f.Fetch(t.Context(), shop, other); err == nil {
		t.Fatal("a wrong digest was accepted")
	}
	got := map[string]float64{"bytes": testutil.ToFloat64(measured.bytes)}
	for _, result := range []string{gotCached, gotDownloaded, gotFailed} {
		got[result] = testutil.ToFloat64(measured.got.WithLabelValues(result))
	}
	// Also what was downloaded a moment ago is taken from the cache.
	want := map[string]float64{gotCached: 2, gotDownloaded: 1, gotFailed: 1, "bytes": float64(f.store.total)}
	if diff := cmp.Diff(want, got); diff != "" || f.store.total == 0 {
		t.Errorf("measured of %d bytes (-want +got):\n%s", f.store.total, diff)
	}
}
