package source

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

// defaultTimeout bounds one download with its unpacking.
const defaultTimeout = 2 * time.Minute

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
}

// Fetcher fetches artifacts by digest into a cache on disk. It is safe for concurrent use.
type Fetcher struct {
	store   *store
	client  *http.Client
	timeout time.Duration
	limits  limits

	// base ends when the Fetcher is closed; running counts what has to end then.
	base    context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	mutex   sync.Mutex
	flights map[string]*flight
}

// flight is one fetch that any number of callers wait for. The Fetcher's mutex guards waiters and landed.
type flight struct {
	waiters int
	landed  bool
	// done is closed when entry and err, the outcome, may be read without the mutex.
	done  chan struct{}
	entry *entry
	err   error
}

// NewFetcher opens the cache in o.Dir, removes what a crash left there, and takes over the rest.
func NewFetcher(o FetcherOptions) (*Fetcher, error) {
	if o.CacheSize <= 0 {
		o.CacheSize = DefaultCacheSize
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	cache, err := openStore(o.Dir, o.CacheSize)
	if err != nil {
		return nil, err
	}
	f := &Fetcher{
		store: cache, client: newClient(o.Transport, o.Hosts), timeout: o.Timeout, limits: defaultLimits,
		flights: map[string]*flight{},
	}
	f.base, f.stop = context.WithCancel(context.Background())
	return f, nil
}

// Close ends the fetches that are on their way, waits for them, and closes the cache. Artifacts that are still open stay
// readable.
func (f *Fetcher) Close() error {
	f.stop()
	f.running.Wait()
	f.client.CloseIdleConnections()
	return f.store.root.Close()
}

// Fetch is the artifact of pin, from the cache if it is there. However many callers ask for the same one, it is fetched
// once, and none of them leaving stops it for the others. The caller closes the artifact when it no longer reads it.
//
// Failures are failure.Errors with reason ArtifactFailed: Transient where trying again may help, Stalled where the archive
// is not what the source says or breaks a limit. If ctx ends first, the error is ctx's.
func (f *Fetcher) Fetch(ctx context.Context, pin Pin) (*Artifact, error) {
	name, err := entryName(pin)
	if err != nil {
		return nil, failure.NewStalled(v1.ReasonArtifactFailed, "the artifact of %s cannot be used: %w", pin, err)
	}
	found, err := f.store.acquire(name)
	if err != nil {
		return nil, failure.NewTransient(v1.ReasonArtifactFailed, "the artifact of %s cannot be used: %w", pin, err)
	}
	if found != nil {
		return newArtifact(f.store, found), nil
	}
	joined := f.join(name, pin)
	select {
	case <-joined.done:
		if joined.err != nil {
			return nil, joined.err
		}
		return newArtifact(f.store, joined.entry), nil
	case <-ctx.Done():
		f.leave(joined)
		return nil, fmt.Errorf("fetching the artifact of %s: %w", pin, context.Cause(ctx))
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

// join makes the caller a waiter of the fetch of that name, which it starts if there is none.
func (f *Fetcher) join(name string, pin Pin) *flight {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if running := f.flights[name]; running != nil {
		running.waiters++
		return running
	}
	started := &flight{waiters: 1, done: make(chan struct{})}
	f.flights[name] = started
	f.running.Go(func() {
		ctx, cancel := context.WithTimeoutCause(f.base, f.timeout, fmt.Errorf("it takes longer than %s", f.timeout))
		defer cancel()
		found, err := f.fetch(ctx, name, pin)
		f.land(name, started, found, err)
	})
	return started
}

// land hands the outcome of a flight to its waiters. found has one user, the flight itself.
func (f *Fetcher) land(name string, landed *flight, found *entry, err error) {
	f.mutex.Lock()
	delete(f.flights, name)
	landed.entry, landed.err, landed.landed = found, err, true
	if err == nil {
		f.store.retain(found, landed.waiters)
	}
	f.mutex.Unlock()
	if err == nil {
		f.store.release(found)
	}
	close(landed.done)
}

// leave ends the wait of one caller, who may already have been counted as a user.
func (f *Fetcher) leave(left *flight) {
	f.mutex.Lock()
	counted := left.landed && left.err == nil
	left.waiters--
	f.mutex.Unlock()
	if counted {
		f.store.release(left.entry)
	}
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
	sealed, err := f.fill(ctx, work, pin)
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
