package source

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
	"github.com/stageset/stageset/reconciler/queue"
)

const (
	// defaultTimeout bounds one download with its unpacking.
	defaultTimeout = 2 * time.Minute
	// defaultPatience is long for an artifact of usual size, and short for a worker.
	defaultPatience = 250 * time.Millisecond
	// maxDownloads is how many downloads run at once. A namespace has at most half of what others leave, as with workers.
	maxDownloads = 16
)

// FetcherOptions are what a Fetcher needs.
type FetcherOptions struct {
	// Dir is the directory of the cache; it is created if need be and belongs to the Fetcher alone.
	Dir string
	// Transport makes the connections: (*dial.Dialer).Transport().
	Transport http.RoundTripper
	// Hosts are where a redirect may lead.
	Hosts Hosts
	// CacheSize is how many bytes of unpacked artifacts are kept on disk (flag --artifact-cache-size); artifacts that are
	// in use or being unpacked come on top. Zero means DefaultCacheSize.
	CacheSize int64
	// Timeout bounds one download with its unpacking. Zero means two minutes.
	Timeout time.Duration
	// Patience is how long Fetch itself waits for a download. Zero means a quarter of a second.
	Patience time.Duration
	// Metrics measures; nil measures nothing.
	Metrics *Metrics
	// Wake is told of a StageSet when the download is over that Fetch did not wait for; nil tells nobody. It may block until
	// ctx is done.
	Wake func(ctx context.Context, stageSet types.NamespacedName)
}

// Fetcher fetches artifacts by digest into a cache on disk. Downloads run beside the passes that ask for them: whoever serves
// an artifact slowly holds no worker. It is safe for concurrent use.
type Fetcher struct {
	store    *store
	client   *http.Client
	timeout  time.Duration
	patience time.Duration
	wake     func(ctx context.Context, stageSet types.NamespacedName)
	limits   limits
	metrics  *Metrics

	// base ends when the Fetcher is closed; running counts what has to end then.
	base    context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
	// turns are downloads that wait for one of the goroutines that make them.
	turns *queue.Queue[turn]

	mutex sync.Mutex
	// flights are the downloads that wait or run, by name of their entry.
	flights map[string]*flight
	// failures are what StageSets have yet to be told: each has the one of what it asked for last.
	failures map[types.NamespacedName]landing
}

// NewFetcher opens the cache in o.Dir, removes what a crash left there, and takes over the rest.
func NewFetcher(o FetcherOptions) (*Fetcher, error) {
	cache, err := openStore(o.Dir, cmp.Or(max(o.CacheSize, 0), DefaultCacheSize))
	if err != nil {
		return nil, err
	}
	f := &Fetcher{
		store: cache, client: newClient(o.Transport, o.Hosts), limits: defaultLimits, wake: o.Wake, metrics: o.Metrics,
		timeout:  cmp.Or(o.Timeout, defaultTimeout),
		patience: cmp.Or(o.Patience, defaultPatience),
		flights:  map[string]*flight{},
		failures: map[types.NamespacedName]landing{},
		turns: queue.New(queue.Options[turn]{
			Workers: maxDownloads, Lane: func(next turn) string { return next.namespace }, Clock: clock.RealClock{},
		}),
	}
	cache.measure(o.Metrics)
	f.base, f.stop = context.WithCancel(context.Background())
	for range maxDownloads {
		f.running.Go(f.work)
	}
	return f, nil
}

// Close ends the downloads that are on their way, waits for them, and closes the cache. Artifacts that are still open stay
// readable.
func (f *Fetcher) Close() error {
	f.stop()
	f.turns.ShutDown()
	f.running.Wait()
	f.client.CloseIdleConnections()
	return f.store.root.Close()
}

// Fetch is the artifact of pin for a StageSet, from the cache if it is there. However many ask for the same one, it is
// downloaded once, and none of them leaving stops it for the others. A StageSet waits for one download: of whatever else it
// asked for before, it is not told any more. The caller closes the artifact when it no longer reads it.
//
// Failures are failure.Errors with reason ArtifactFailed: Transient where trying again may help, Stalled where the archive
// is not what the source says or breaks a limit. A download that takes longer than a moment goes on by itself: the failure
// then has the reason Progressing, and the StageSet is woken when the download is over. If ctx ends first, the error is
// ctx's.
func (f *Fetcher) Fetch(ctx context.Context, stageSet types.NamespacedName, pin Pin) (*Artifact, error) {
	name, err := entryName(pin)
	if err != nil {
		return nil, failure.NewStalled(v1.ReasonArtifactFailed, "the artifact of %s cannot be used: %w", pin, err)
	}
	patient, cancel := context.WithTimeout(ctx, f.patience)
	defer cancel()
	for {
		if err := f.told(stageSet, name); err != nil {
			return nil, err
		}
		found, err := f.store.acquire(name)
		if err != nil {
			return nil, failure.NewTransient(v1.ReasonArtifactFailed, "the artifact of %s cannot be used: %w", pin, err)
		}
		if found != nil {
			f.metrics.count(gotCached)
			return newArtifact(f.store, found), nil
		}
		joined := f.join(name, stageSet, pin)
		select {
		case <-joined.done:
			continue
		case <-f.base.Done():
			return nil, fmt.Errorf("fetching the artifact of %s: %w", pin, context.Cause(f.base))
		case <-patient.Done():
		}
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("fetching the artifact of %s: %w", pin, context.Cause(ctx))
		case f.leave(joined, stageSet):
			return nil, failure.NewWaiting(v1.ReasonProgressing, f.timeout, "the artifact of %s is being fetched", pin)
		}
	}
}

// entryName is the path of pin's artifact in the store.
func entryName(pin Pin) (string, error) {
	sum, err := parseDigest(pin.Digest)
	if err != nil {
		return "", err
	}
	uid := string(pin.UID)
	if !uidPattern.MatchString(uid) || strings.HasPrefix(uid, workPrefix) {
		return "", fmt.Errorf("the source's uid %q is not one", shortened(uid))
	}
	return path.Join(uid, sum.algorithm+"-"+sum.hex), nil
}

// fetch is the entry of that name, with one user: what an earlier process left if it is intact, else what pin.URL gives.
func (f *Fetcher) fetch(ctx context.Context, name string, pin Pin) (*entry, error) {
	f.store.verify(name)
	if found, err := f.store.acquire(name); found != nil || err != nil {
		return found, err
	}
	work, err := f.store.newWork()
	if err != nil {
		return nil, fetchFailure(ctx, pin, err)
	}
	end := f.metrics.begin()
	sealed, err := f.fill(ctx, work, pin)
	end(err)
	if err == nil {
		var published *entry
		if published, err = f.store.publish(work, name, sealed); err == nil {
			return published, nil
		}
	}
	f.store.remove([]string{work})
	return nil, fetchFailure(ctx, pin, err)
}

// fill downloads and unpacks the artifact of pin into the work directory.
func (f *Fetcher) fill(ctx context.Context, work string, pin Pin) (seal, error) {
	dir, err := f.store.root.OpenRoot(work)
	if err != nil {
		return seal{}, &diskError{err}
	}
	defer dir.Close()
	archive, err := dir.OpenFile(archiveName, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return seal{}, &diskError{err}
	}
	defer archive.Close()
	if err := download(ctx, f.client, pin, archive); err != nil {
		return seal{}, err
	}
	if err := dir.Mkdir(treeName, 0o700); err != nil {
		return seal{}, &diskError{err}
	}
	tree, err := dir.OpenRoot(treeName)
	if err != nil {
		return seal{}, &diskError{err}
	}
	defer tree.Close()
	unpacked, err := unpack(ctx, archive, tree, f.limits)
	if err != nil {
		return seal{}, &archiveError{err}
	}
	if err := dir.Remove(archiveName); err != nil {
		return seal{}, &diskError{err}
	}
	return seal{Sum: unpacked.files.sum(), Bytes: unpacked.onDisk}, nil
}
