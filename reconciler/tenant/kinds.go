package tenant

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

const (
	// rediscoverPause is the least time between two looks at a group or version that lacks what is sought, or whose answer
	// proved wrong. It is how late a new CRD is noticed at most, and what keeps a manifest with a made-up kind from
	// causing a storm of requests.
	rediscoverPause = time.Second
	// discoveredLength bounds how long an answer may be that is remembered, in bytes, and discoveredVersions how many versions
	// it may have: far above what clusters serve.
	discoveredLength   = 256 << 10
	discoveredVersions = 100
	// localDiscovered and remoteDiscovered bound all that is remembered of the cluster that StageSets are in, and of all others
	// together, by the memory that it takes, in bytes. Most clusters need some ten KiB.
	localDiscovered  = 8 << 20
	remoteDiscovered = 16 << 20
	// answerSize and kindSize are about what an answer, and a kind or version in it, takes besides its texts.
	answerSize = 512
	kindSize   = 100
)

// kind is what the path of a request needs to know.
type kind struct {
	plural     string
	namespaced bool
	// status and scale are true when objects have the subresource of that name.
	status, scale bool
}

// discovered is the answer for one group ("/apis/apps": versions) or one version of it ("/apis/apps/v1": kinds). Immutable
// but for doubted.
type discovered struct {
	versions []string
	kinds    map[string]kind
	asked    time.Time
	doubted  atomic.Bool
}

// kinds is what is known of the kinds that a cluster serves; all its clients share it. Each group version is asked for by
// itself, when it is first needed: a broken aggregated API is met only by who uses it, and a kind that is missing costs one
// small request and drops nothing that is known. What is known stays until a request shows that it is wrong.
type kinds struct {
	clock   clock.PassiveClock
	flights singleflight.Group
	answers *answers
	// endpoint is whose answers these are.
	endpoint string
}

// answers are those of one cluster, or of several that share a bound. Safe for concurrent use.
type answers struct {
	// most bounds size, which is what all answers in the cache take.
	most int

	mu    sync.Mutex
	cache *lru.Cache
	size  int
}

// answerOf is what was asked of whom.
type answerOf struct{ endpoint, path string }

func newAnswers(most int) *answers {
	a := &answers{most: most}
	a.cache = lru.NewWithEvictionFunc(0, func(of lru.Key, dropped any) { a.size -= dropped.(*discovered).size(of.(answerOf)) })
	return a
}

// get finds a kind in its version, or returns a meta.NoKindMatchError.
func (k *kinds) get(ctx context.Context, as *Client, gvk schema.GroupVersionKind) (kind, error) {
	if gvk.Version == "" || !segments(gvk.Group, gvk.Version) {
		return kind{}, noMatch(gvk)
	}
	answer, err := k.ask(ctx, as, versionPath(gvk.GroupVersion()), func(d *discovered) bool {
		_, ok := d.kinds[gvk.Kind]
		return ok
	})
	if err != nil {
		return kind{}, err
	}
	found, ok := answer.kinds[gvk.Kind]
	if !ok {
		return kind{}, noMatch(gvk)
	}
	return found, nil
}

// any finds a kind in the first version that has it, the group's preferred one first, and says which.
func (k *kinds) any(ctx context.Context, as *Client, of schema.GroupKind) (kind, string, error) {
	if !segments(of.Group) {
		return kind{}, "", noMatch(of.WithVersion(""))
	}
	versions := []string{"v1"}
	if of.Group != "" {
		group, err := k.ask(ctx, as, path.Join("/apis", of.Group), func(d *discovered) bool { return len(d.versions) > 0 })
		if err != nil {
			return kind{}, "", err
		}
		versions = group.versions
	}
	for _, version := range versions {
		found, err := k.get(ctx, as, of.WithVersion(version))
		if !meta.IsNoMatchError(err) {
			return found, version, err
		}
	}
	return kind{}, "", noMatch(of.WithVersion(""))
}

// doubt has the version asked for again, since a request to a path of it was answered as if it did not exist.
func (k *kinds) doubt(version schema.GroupVersion) {
	if answer := k.known(versionPath(version)); answer != nil {
		answer.doubted.Store(true)
	}
}

// ask answers from memory if that has what is sought, or was learned within the pause.
func (k *kinds) ask(
	ctx context.Context, as *Client, path string, has func(*discovered) bool,
) (*discovered, error) {
	if answer := k.usable(path, has); answer != nil {
		return answer, nil
	}
	pass := passOf(ctx)
	if as.line != nil && pass.hasEnded() {
		return nil, context.DeadlineExceeded
	}
	// Accounts do not wait for each other's requests: the failure of one is nothing that another should be told. Nor do those
	// who have all the time for what somebody in a hurry gives up.
	flight := k.flights.DoChan(fmt.Sprintf("%s %s %t", as.caller, path, pass.hurries()), func() (any, error) {
		if answer := k.usable(path, has); answer != nil {
			return flown{answer: answer}, nil
		}
		own := pass.fork()
		answer, err := k.fetch(own.Context(context.WithoutCancel(ctx)), as, path)
		return flown{answer, own, err}, nil
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case result := <-flight:
		came := result.Val.(flown)
		pass.join(came.pass)
		return came.answer, came.err
	}
}

// flown is what came of a request that several wait for, and the pass that it was sent by in the place of theirs.
type flown struct {
	answer *discovered
	pass   *Pass
	err    error
}

// fetch asks the server, as the account that needs to know. An error is not remembered, nor is an answer of unusual length;
// "not found" is, as an empty answer.
func (k *kinds) fetch(ctx context.Context, as *Client, path string) (*discovered, error) {
	now := k.clock.Now()
	body, err := as.send(ctx, as.requests.Verb(http.MethodGet).AbsPath(path))
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	answer := &discovered{asked: now}
	if err == nil {
		if err := answer.read(body); err != nil {
			return nil, unreadable(err)
		}
	}
	if len(body) <= discoveredLength && len(answer.versions) <= discoveredVersions {
		k.answers.add(answerOf{k.endpoint, path}, answer)
	}
	return answer, nil
}

// add keeps an answer in place of those that were not used for longest.
func (a *answers) add(of answerOf, answer *discovered) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cache.Remove(of)
	size := answer.size(of)
	for a.size+size > a.most && a.cache.Len() > 0 {
		a.cache.RemoveOldest()
	}
	a.cache.Add(of, answer)
	a.size += size
}

// get is nil for what is not remembered.
func (a *answers) get(of answerOf) *discovered {
	a.mu.Lock()
	defer a.mu.Unlock()
	if found, ok := a.cache.Get(of); ok {
		return found.(*discovered)
	}
	return nil
}

// size is how much memory it takes, in bytes: many short kinds take more than their answer was long.
func (d *discovered) size(of answerOf) int {
	size := answerSize + len(of.endpoint) + len(of.path)
	for _, version := range d.versions {
		size += kindSize + len(version)
	}
	for name, known := range d.kinds {
		size += kindSize + len(name) + len(known.plural)
	}
	return size
}

// read understands an APIGroup and an APIResourceList.
func (d *discovered) read(body []byte) error {
	var answer struct {
		Versions  []metav1.GroupVersionForDiscovery `json:"versions"`
		Preferred metav1.GroupVersionForDiscovery   `json:"preferredVersion"`
		Resources []struct {
			Name       string `json:"name"`
			Kind       string `json:"kind"`
			Namespaced bool   `json:"namespaced"`
		} `json:"resources"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return err
	}
	if preferred := answer.Preferred.Version; preferred != "" {
		d.versions = append(d.versions, preferred)
	}
	for _, version := range answer.Versions {
		if version.Version != answer.Preferred.Version {
			d.versions = append(d.versions, version.Version)
		}
	}
	d.kinds = make(map[string]kind, len(answer.Resources))
	subresources := map[string]bool{}
	for _, resource := range answer.Resources {
		// Subresources ("deployments/scale") are listed too, with kinds of their own; their names are no path segments.
		_, known := d.kinds[resource.Kind]
		if !known && segments(resource.Name) {
			d.kinds[resource.Kind] = kind{plural: resource.Name, namespaced: resource.Namespaced}
		}
		subresources[resource.Name] = true
	}
	for name, known := range d.kinds {
		known.status, known.scale = subresources[known.plural+"/status"], subresources[known.plural+"/scale"]
		d.kinds[name] = known
	}
	return nil
}

// usable is the answer in memory if it has what is sought and nothing speaks against it, or is too young to ask again.
func (k *kinds) usable(path string, has func(*discovered) bool) *discovered {
	answer := k.known(path)
	if answer == nil {
		return nil
	}
	if k.clock.Since(answer.asked) < rediscoverPause || has(answer) && !answer.doubted.Load() {
		return answer
	}
	return nil
}

func (k *kinds) known(path string) *discovered { return k.answers.get(answerOf{k.endpoint, path}) }

// versionPath is where the API of a group's version begins.
func versionPath(version schema.GroupVersion) string {
	if version.Group == "" {
		return path.Join("/api", version.Version)
	}
	return path.Join("/apis", version.Group, version.Version)
}

// segments says whether the values can be parts of a path. An empty one can: the core group has no name.
func segments(values ...string) bool {
	const longest = 253
	for _, value := range values {
		if value != "" && (checkSegment("", value) != nil || len(value) > longest) {
			return false
		}
	}
	return true
}

func noMatch(gvk schema.GroupVersionKind) error {
	err := &meta.NoKindMatchError{GroupKind: gvk.GroupKind()}
	if gvk.Version != "" {
		err.SearchedVersions = []string{gvk.Version}
	}
	return err
}
