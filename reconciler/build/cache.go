package build

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"k8s.io/utils/clock"

	v1 "github.com/stageset/stageset/api/v1"
	"github.com/stageset/stageset/reconciler/failure"
)

// Cache keeps rendered manifests by artifact and options, which have the values that were substituted: the least recently
// used first out. It is safe for concurrent use.
type Cache struct {
	limit int64

	mutex   sync.Mutex
	entries map[cacheKey]*list.Element
	// recent holds *cached, the most recently used first.
	recent  *list.List
	total   int64
	flights map[cacheKey]*flight
	large   *slots
	// patience is how long a caller waits for the same build of another.
	patience time.Duration
}

type cacheKey [sha256.Size]byte

// flight is a build on its way; its outcome may be read once done is closed.
type flight struct {
	done      chan struct{}
	manifests Manifests
	err       error
	// abandoned says that the caller whose build it was left: the outcome is worth nothing to others.
	abandoned bool
}

type cached struct {
	key       cacheKey
	manifests Manifests
}

// NewCache keeps manifests of about maxBytes in all (Manifests.Size).
func NewCache(maxBytes int64) *Cache {
	return &Cache{
		limit: maxBytes, entries: map[cacheKey]*list.Element{}, recent: list.New(), flights: map[cacheKey]*flight{},
		large: newSlots(clock.RealClock{}), patience: sharedPatience,
	}
}

// Artifact is a directory of files that somebody else may remove once it is closed.
type Artifact interface {
	FS() fs.FS
	Close() error
}

// Open gives an artifact, from wherever it is.
type Open func(ctx context.Context) (Artifact, error)

// Build is what Build gives, or gave before for the same artifact and options; only what is not kept opens the artifact. id
// names the artifact: it must be that of one content alone, and known to nobody who may not read it. Callers that ask for
// the same at once share one build; if its caller leaves, another of them builds. Failures are not kept; those of open are
// returned as they are. No caller waits long for others: of large builds only some run at once, of opts.Namespace one while
// others want some, and one too many is a failure that waits, as is a build that another caller has not ended after a moment.
func (c *Cache) Build(ctx context.Context, id string, open Open, opts Options) (Manifests, error) {
	key, err := keyOf(id, opts)
	if err != nil {
		return Manifests{}, err
	}
	if found, kept := c.kept(key); kept {
		return found, nil
	}
	artifact, err := open(ctx)
	if err != nil {
		return Manifests{}, err
	}
	defer func() { _ = artifact.Close() }() // it was only read
	patient, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	for {
		found, running, mine := c.lookUp(key)
		if mine {
			return c.build(ctx, key, running, func() (Manifests, error) {
				return buildBeside(ctx, c.large, artifact.FS(), opts)
			})
		}
		if running == nil {
			return found, nil
		}
		select {
		case <-running.done:
			if !running.abandoned {
				return running.manifests, running.err
			}
		case <-patient.Done():
			if ctx.Err() != nil {
				return Manifests{}, fmt.Errorf("build: %w", context.Cause(ctx))
			}
			return Manifests{}, failure.NewWaiting(v1.ReasonProgressing, busyPause, "%w", errShared)
		}
	}
}

func keyOf(id string, opts Options) (cacheKey, error) {
	text, err := json.Marshal(struct {
		ID      string
		Options Options
	}{id, opts})
	if err != nil {
		return cacheKey{}, fmt.Errorf("build: %w", err)
	}
	return sha256.Sum256(text), nil
}

// kept is what is kept for key.
func (c *Cache) kept(key cacheKey) (Manifests, bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.find(key)
}

// find is kept for who has the mutex.
func (c *Cache) find(key cacheKey) (Manifests, bool) {
	element := c.entries[key]
	if element == nil {
		return Manifests{}, false
	}
	c.recent.MoveToFront(element)
	return element.Value.(*cached).manifests, true
}

// lookUp is what is kept for key, or else the build of it: one that runs, or a new one that is the caller's to run.
func (c *Cache) lookUp(key cacheKey) (found Manifests, running *flight, mine bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if found, kept := c.find(key); kept {
		return found, nil, false
	}
	if running = c.flights[key]; running != nil {
		return Manifests{}, running, false
	}
	running = &flight{done: make(chan struct{})}
	c.flights[key] = running
	return Manifests{}, running, true
}

func (c *Cache) build(ctx context.Context, key cacheKey, own *flight, build func() (Manifests, error)) (Manifests, error) {
	own.manifests, own.err = build()
	own.abandoned = own.err != nil && ctx.Err() != nil
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if size := own.manifests.Size(); own.err == nil && size <= c.limit {
		c.entries[key] = c.recent.PushFront(&cached{key, own.manifests})
		c.total += size
		c.evict()
	}
	close(own.done)
	var left *leftAloneError
	if errors.As(own.err, &left) && !own.abandoned {
		go c.landAfter(left.ended, key)
		return own.manifests, own.err
	}
	delete(c.flights, key)
	return own.manifests, own.err
}

// landAfter keeps a build on its way until it has really ended. Who asks for it meanwhile is told what its caller was: each
// try would else leave another run of kustomize behind.
func (c *Cache) landAfter(ended <-chan struct{}, key cacheKey) {
	<-ended
	c.mutex.Lock()
	defer c.mutex.Unlock()
	delete(c.flights, key)
}

// evict drops what was used least recently until the rest is within the limit.
func (c *Cache) evict() {
	for c.total > c.limit {
		last := c.recent.Back()
		dropped := c.recent.Remove(last).(*cached)
		delete(c.entries, dropped.key)
		c.total -= dropped.manifests.Size()
	}
}
